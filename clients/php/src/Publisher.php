<?php

declare(strict_types=1);

namespace Newsfabric;

use PhpAmqpLib\Wire\AMQPTable;

/**
 * Publishes to newsfabric, and knows what became of it: sends, waits, sends again.
 *
 * A message is answered by a receipt (stored and routed), or, told so, by a broker's confirm. Without an
 * answer in time it is sent again with the same messageId, which the fabric knows for the same message,
 * and by the next region that can be reached; each time it waits longer.
 */
final class Publisher
{
    /** How often messages without an answer are checked, in seconds. */
    private const CHECK_EVERY = 0.05;

    /** @var Entrance[] */
    private array $entrances = [];
    /** @var array<string, Sending> by messageId */
    private array $waiting = [];
    private float $nextCheck = 0.0;

    /**
     * @param string[] $regions  nearest first; each the AMQP URLs of its client cluster, with commas between them
     * @param string   $appId    who publishes; messageIds are unique per appId
     * @param bool     $receipt  wait for a receipt (true) or for a broker's confirm only
     * @param int      $copies   into how many regions each message is published at once
     * @param float    $timeout  seconds that a message waits for its answer in all
     * @param int      $window   how many messages are under way at most
     * @param float    $sendAgain seconds before a message is sent again the first time; then twice as long, up to 10
     *
     * @throws \InvalidArgumentException for a bad URL, or none
     */
    public function __construct(
        array $regions,
        private readonly string $appId,
        private readonly bool $receipt = true,
        private readonly int $copies = 1,
        private readonly float $timeout = 30.0,
        private readonly int $window = 1000,
        private readonly float $sendAgain = 2.0,
    ) {
        if ($regions === []) {
            throw new \InvalidArgumentException('a publisher needs the AMQP URLs of one region at least');
        }
        foreach (array_values($regions) as $number => $region) {
            $this->entrances[] = new Entrance($number, $region, $appId, $this);
        }
    }

    /**
     * Publish, and return when it is known to be routed (receipt: false: taken). Options as for send().
     *
     * @throws PublishError Rejected, Returned, AccessRefused or Unanswered
     */
    public function publish(string $topic, mixed $body, mixed ...$options): Published
    {
        return $this->send($topic, $body, ...$options)->published();
    }

    /**
     * Begin to publish; ask what it returns for published(). Waits while $window messages are under way.
     *
     * A string is taken for JSON as it is; anything else is written as JSON. docs/publishing.md says what
     * each option means; messageId is made where absent, expiration is in ms, receipt and copies
     * default to the publisher's.
     *
     * @throws \InvalidArgumentException for what AMQP can't carry, or a messageId that is under way
     */
    public function send(
        string $topic,
        mixed $body,
        ?string $key = null,
        ?int $version = null,
        ?string $messageId = null,
        ?string $type = null,
        ?int $expiration = null,
        ?string $traceparent = null,
        ?bool $receipt = null,
        ?int $copies = null,
    ): Sending {
        $messageId ??= bin2hex(random_bytes(16));
        if (isset($this->waiting[$messageId])) {
            throw new \InvalidArgumentException("messageId $messageId is under way already");
        }
        // AMQP 0-9-1 section 4.2.5.3. Said here, because on the way out it would cost the connection.
        foreach ([$topic, $messageId, $this->appId, $type ?? ''] as $text) {
            if (strlen($text) > 255) {
                throw new \InvalidArgumentException('topic, messageId, appId and type have at most 255 bytes');
            }
        }
        $milliseconds = (int) (microtime(true) * 1000);
        $headers = ['key' => $key, 'version' => $version, 'traceparent' => $traceparent, 'timestamp_in_ms' => $milliseconds];
        $properties = [
            'content_type' => 'application/json',
            'delivery_mode' => 1,
            'app_id' => $this->appId,
            'message_id' => $messageId,
            'correlation_id' => $messageId,
            'timestamp' => intdiv($milliseconds, 1000),
            'type' => $type,
            'expiration' => $expiration === null ? null : (string) $expiration,
            'application_headers' => new AMQPTable(array_filter($headers, fn ($value) => $value !== null)),
        ];
        $sending = new Sending(
            $this,
            $messageId,
            $topic,
            is_string($body) ? $body : json_encode($body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE),
            array_filter($properties, fn ($value) => $value !== null),
            $receipt ?? $this->receipt,
            $copies ?? $this->copies,
            self::now() + $this->timeout,
            $this->sendAgain,
        );
        if (self::now() >= $this->nextCheck) {
            // Who only sends must notice too that nobody answers.
            $this->step(0.0);
        }
        while (count($this->waiting) >= $this->window) {
            $this->step();
        }
        $this->waiting[$messageId] = $sending;
        $this->offer($sending);
        return $sending;
    }

    /** Wait until nothing is under way any more. */
    public function wait(): void
    {
        while ($this->waiting !== []) {
            $this->step();
        }
    }

    /** Wait for what is under way, then close. */
    public function close(): void
    {
        $this->wait();
        foreach ($this->entrances as $entrance) {
            $entrance->close();
        }
    }

    /** Wait $seconds at most for answers, take them, send again what is due. @internal */
    public function step(float $seconds = self::CHECK_EVERY): void
    {
        $microseconds = (int) ($seconds * 1e6);
        $sockets = array_filter(array_map(fn (Entrance $e) => $e->socket(), $this->entrances));
        $none = null;
        if ($sockets === []) {
            usleep($microseconds);
        } else {
            // A signal cuts it short: no harm.
            @stream_select($sockets, $none, $none, 0, $microseconds);
        }
        foreach ($this->entrances as $entrance) {
            $entrance->read();
        }
        $now = self::now();
        if ($now >= $this->nextCheck) {
            $this->nextCheck = $now + self::CHECK_EVERY;
            $this->sendAgainOrGiveUp($now);
        }
    }

    private function sendAgainOrGiveUp(float $now): void
    {
        foreach ($this->waiting as $sending) {
            if ($now >= $sending->deadline) {
                $this->settle($sending, new Unanswered($sending->messageId, $this->timeout, $this->troubles()));
            } elseif ($now >= $sending->due) {
                foreach ($this->entrances as $entrance) {
                    $entrance->leaveIfSilent($sending);
                }
                $this->offer($sending);
            }
        }
    }

    /** Hand it to as many regions as wanted, each time beginning with the next: none is relied on. */
    private function offer(Sending $sending): void
    {
        $usable = [];
        foreach ($this->entrances as $entrance) {
            // Regions that aren't needed aren't connected to.
            if (count($usable) < $sending->tries + $sending->copies
                && !isset($sending->returned[$entrance->number]) && $entrance->isUsable($sending->deadline)) {
                $usable[] = $entrance;
            }
        }
        // Connecting may have taken its time.
        $now = self::now();
        if ($usable === []) {
            $sending->due = $now + self::CHECK_EVERY;
            if ($sending->tries === 0 && array_filter($this->entrances, fn (Entrance $e) => !$e->refused) === []) {
                $this->settle($sending, new AccessRefused($this->troubles()));
            }
            return;
        }
        $try = $sending->begin($now);
        for ($n = 0; $n < min($sending->copies, count($usable)); $n++) {
            $usable[($try + $n) % count($usable)]->publish($sending);
        }
    }

    private function troubles(): string
    {
        return implode('; ', array_merge(...array_map(fn (Entrance $e) => array_values($e->troubles), $this->entrances)));
    }

    /** The first answer is it. A later one doesn't concern what was sent anew with the same messageId. */
    private function settle(Sending $sending, Published|PublishError $answer): void
    {
        if ($sending->answer === null) {
            $sending->answer = $answer;
            unset($this->waiting[$sending->messageId]);
        }
    }

    /** @internal */
    public function onConfirmed(Sending $sending): void
    {
        if (!$sending->receipt) {
            $this->settle($sending, new Published($sending->messageId, false));
        }
    }

    /** @internal */
    public function onReturned(string $messageId, Entrance $by, string $text): void
    {
        $sending = $this->waiting[$messageId] ?? null;
        if ($sending === null) {
            return;
        }
        $sending->returned[$by->number] = true;
        if (count($sending->returned) === count($this->entrances)) {
            $this->settle($sending, new Returned($text));
        } else {
            $sending->due = 0.0;
        }
    }

    /** It may not have arrived. A broker that knows rights says which topic it has $refused. @internal */
    public function onLost(Sending $sending, ?string $refused): void
    {
        if ($refused !== null
            && (str_contains($refused, "topic '$sending->topic'") || str_contains($refused, "access to exchange 'publish'"))) {
            $this->settle($sending, new Rejected('publisher_not_allowed', $refused));
        } else {
            $sending->due = 0.0;
        }
    }

    /** More than one may come for one message: the first counts. @internal */
    public function onReceipt(string $correlationId, string $document): void
    {
        $receipt = json_decode($document, true);
        $sending = $this->waiting[$correlationId] ?? null;
        if ($sending === null || !is_array($receipt)) {
            return;
        }
        // Whoever may write receipts may write anything.
        $field = fn (string $name) => is_string($receipt[$name] ?? null) ? $receipt[$name] : null;
        if ($field('status') === 'rejected') {
            $this->settle($sending, new Rejected($field('reason') ?? '?', $field('detail') ?? ''));
        } elseif ($field('status') === 'routed') {
            $this->settle($sending, new Published(
                $sending->messageId,
                true,
                $field('id'),
                $field('identity'),
                $field('region'),
                $field('router'),
                ($receipt['repeated'] ?? false) === true,
            ));
        }
    }

    /** The time, in seconds of hrtime. @internal */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
