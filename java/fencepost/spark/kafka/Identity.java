package fencepost.spark.kafka;

/** The producer under which all tasks of a transaction write. */
public record Identity(String transactionalId, long producerId, short producerEpoch) {}
