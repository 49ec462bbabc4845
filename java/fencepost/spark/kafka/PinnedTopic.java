package fencepost.spark.kafka;

import java.util.UUID;

/** A topic as it was when the transaction began. A topic created later under the same name has another id. */
public record PinnedTopic(UUID topicId, int partitionCount) {}
