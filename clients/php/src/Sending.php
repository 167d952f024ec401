<?php

declare(strict_types=1);

namespace Newsfabric;

/** One message on its way, returned by Publisher::send(). Ask it for its answer, or errors go unseen. */
final class Sending
{
    private const SEND_AGAIN_AT_LAST = 10.0;

    /** The key of its receipts. Not the messageId: anybody who can guess it could answer for a router. @internal */
    public readonly string $secret;
    /** The time of the next try, in seconds of hrtime. @internal */
    public float $due = 0.0;
    /** The number of tries. @internal */
    public int $tries = 0;
    /** @var array{int, float}[] the brokers that got it, and the times @internal */
    public array $handed = [];
    /** @var array<int, string> the reasons why brokers returned it @internal */
    public array $returned = [];
    /** The text with which a broker last closed the message's channel. @internal */
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

    /** True if there is an answer. */
    public function isDone(): bool
    {
        return $this->answer !== null;
    }

    /** Begin a try; the next is due after $first seconds, and then after twice the last pause. @internal */
    public function begin(float $now, float $first): void
    {
        $this->pause = $this->tries++ === 0 ? $first : max($first, min(2 * $this->pause, self::SEND_AGAIN_AT_LAST));
        $this->due = $now + $this->pause;
    }
}
