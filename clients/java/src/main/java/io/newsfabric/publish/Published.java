package io.newsfabric.publish;

/**
 * A message that arrived: {@code routed}, or, without a receipt, taken by a broker.
 *
 * <p>{@code id}, {@code identity}, {@code region} and {@code router} are from the receipt and null
 * without one; {@code repeated} is a hint that it had been routed before.
 */
public record Published(
    String messageId, boolean routed, String id, String identity, String region, String router, boolean repeated) {}
