<?php

declare(strict_types=1);

namespace Newsfabric;

/** One message under way; what Publisher::send() returns. Ask it for its answer, or errors go unseen. */
final class Sending
{
    private const SEND_AGAIN_AT_LAST = 10.0;

    /** What its receipts are known by. Not the messageId: who can guess that could answer for a router. @internal */
    public readonly string $secret;
    /** When the next try is due, in seconds of hrtime. @internal */
    public float $due = 0.0;
    /** How many tries have begun. @internal */
    public int $tries = 0;
    /** @var array{int, float}[] the brokers it was handed to, and when @internal */
    public array $handed = [];
    /** @var array<int, string> why brokers gave it back @internal */
    public array $returned = [];
    /** The words with which a broker last closed the channel that it was under way on. @internal */
    public string $trouble = '';
    /** @internal */
    public Published|PublishError|null $answer = null;
    private float $pause = 0.0;

    /** @internal */
    public function __construct(
        private readonly Publisher $publisher,
        public readonly string $messageId,
        public readonly string $topic,
        public readonly string $body,
        public readonly array $properties,
        public readonly bool $receipt,
        public readonly int $copies,
        public readonly float $deadline,
    ) {
        $this->secret = bin2hex(random_bytes(16));
    }

    /**
     * Waits for the answer.
     *
     * @throws PublishError
     */
    public function published(): Published
    {
        while ($this->answer === null) {
            $this->publisher->step();
        }
        return $this->answer instanceof PublishError ? throw $this->answer : $this->answer;
    }

    /** Whether there is an answer. */
    public function isDone(): bool
    {
        return $this->answer !== null;
    }

    /** A try begins; the next is due after $first seconds, and then after twice the pause of the last. @internal */
    public function begin(float $now, float $first): void
    {
        $this->pause = $this->tries++ === 0 ? $first : max($first, min(2 * $this->pause, self::SEND_AGAIN_AT_LAST));
        $this->due = $now + $this->pause;
    }
}
