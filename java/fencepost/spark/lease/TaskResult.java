package fencepost.spark.lease;

/** The records that the owner of an input partition wrote, as the driver said it: JSON that goes back as it came. */
public record TaskResult(String json, long records) {}
