"""The classic group protocol: members join, a leader assigns, and members fetch their assignment."""
