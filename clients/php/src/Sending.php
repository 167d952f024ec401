<?php

declare(strict_types=1);

namespace Newsfabric;

/** One message under way; what Publisher::send() returns. Ask it for its answer, or errors go unseen. */
final class Sending
{
    private const SEND_AGAIN_AT_LAST = 10.0;

    /** When the next try is due, in seconds of hrtime. @internal */
    public float $due = 0.0;
    /** How many tries have begun. @internal */
    public int $tries = 0;
    /** Regions whose broker gave it back, by their number. @internal */
    public array $returned = [];
    /** @internal */
    public Published|PublishError|null $answer = null;

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
        private float $pause,
    ) {
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

    /** A try begins; the next is due after twice the pause of the last. @internal */
    public function begin(float $now): int
    {
        $this->due = $now + $this->pause;
        $this->pause = min(2 * $this->pause, self::SEND_AGAIN_AT_LAST);
        return $this->tries++;
    }
}
