package io.newsfabric.publish;

/**
 * A message that arrived: {@code routed}, or, without a receipt, confirmed by a broker.
 *
 * <p>{@code identity} identifies the message, the same for every copy and repeat in every region: keep it, and compare
 * it with readers' identities. {@code id} was made by {@code router} of {@code region}; readers may see the id of
 * another router, above all for gold. All four are from the receipt and null without one; {@code repeated} is a hint
 * that the message had been routed before.
 */
public record Published(
    String messageId, boolean routed, String id, String identity, String region, String router, boolean repeated) {}
