"""Access control lists: what an ACL says, which ACLs a filter matches, and whether a client may do something."""
