<?php

declare(strict_types=1);

namespace Newsfabric;

/**
 * A message that arrived: routed, or, without a receipt, taken by a broker.
 *
 * identity says which message it is, the same for every copy and repeat in every region: keep it, and compare it
 * with that of what readers see. id is what router of region made of it; readers may see that of another router,
 * above all of gold. All four are from the receipt, null without one; repeated is a hint that it had been routed
 * before.
 */
final class Published
{
    public function __construct(
        public readonly string $messageId,
        public readonly bool $routed,
        public readonly ?string $id = null,
        public readonly ?string $identity = null,
        public readonly ?string $region = null,
        public readonly ?string $router = null,
        public readonly bool $repeated = false,
    ) {
    }
}
