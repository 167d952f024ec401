package io.newsfabric.publish;

/**
 * A message that arrived: {@code routed}, or, without a receipt, taken by a broker.
 *
 * <p>{@code identity} says which message it is, the same for every copy and repeat in every region: keep it, and
 * compare it with that of what readers see. {@code id} is what {@code router} of {@code region} made of it; readers may
 * see that of another router, above all of gold. All four are from the receipt and null without one; {@code
 * repeated} is a hint that it had been routed before.
 */
public record Published(
    String messageId, boolean routed, String id, String identity, String region, String router, boolean repeated) {}
