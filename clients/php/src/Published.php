<?php

declare(strict_types=1);

namespace Newsfabric;

/**
 * A message that arrived: routed, or, without a receipt, taken by a broker.
 *
 * id, identity, region and router are from the receipt, null without one; repeated is a hint that it
 * had been routed before.
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
