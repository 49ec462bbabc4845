"""The errors of Kafka and of librdkafka, each with its meaning, its cause and the remedy."""
