<?php

declare(strict_types=1);

namespace Newsfabric;

/**
 * A message that arrived: routed, or, without a receipt, confirmed by a broker.
 *
 * identity identifies the message, the same for every copy and repeat in every region: keep it, and compare it
 * with readers' identities. id was made by router of region; readers may see the id of another router, above all
 * for gold. All four are from the receipt, null without one; repeated is a hint that the message had been routed
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
