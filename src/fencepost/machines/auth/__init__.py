"""Who a client is: the exchanges of SASL, tokens and certificates. Follows Kafka's org.apache.kafka.common.security."""
