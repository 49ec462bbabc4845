package fencepost.spark.lease;

import fencepost.spark.kafka.TopicPartition;

/** The right to write one record batch, at this sequence. The task stops retrying within `withinMs`, so that it reports its error before the lease expires. */
public record Lease(TopicPartition where, int baseSequence, int recordCount, long withinMs) {}
