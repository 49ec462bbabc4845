package fencepost.spark.lease;

import fencepost.spark.kafka.TopicPartition;

/** A lease. The task stops retrying within `withinMs`, so that it reports its error before the lease expires. */
public record Granted(TopicPartition where, int baseSequence, int recordCount, long withinMs) {}
