<?php

declare(strict_types=1);

namespace Newsfabric;

use PhpAmqpLib\Wire\AMQPTable;

/**
 * Publishes to newsfabric, and reports the result: sends, waits, sends again.
 *
 * A message is answered by a receipt (stored and routed), or, if so configured, by a broker's confirm. Without
 * an answer in time it is sent again with the same messageId, by which the fabric recognises it, and through
 * another broker: of the same region first, then of the next one. Each pause is longer.
 */
final class Publisher
{
    /** Seconds between checks for overdue answers. */
    private const CHECK_EVERY = 0.05;
    /** Routers' limit in bytes; a client broker closes the channel for a body twice as large. */
    private const MAX_BODY = 64 * 1024;
    private const MAX_TEXT = 255;

    /** @var Entrance[] */
    private array $entrances = [];
    /** @var array<string, Sending> by their secret */
    private array $waiting = [];
    private float $nextCheck = 0.0;
    private readonly Choice $choice;

    /**
     * @param string[] $regions  nearest first; each the AMQP URLs of its brokers, with commas between them
     * @param string   $appId    the publisher; messageIds are unique per appId
     * @param bool     $receipt  wait for a receipt (true) or for a broker's confirm only
     * @param int      $copies   the number of regions that get each message at once
     * @param float    $timeout  seconds that a message waits for its answer in all
     * @param int      $window   the most messages on their way
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
        private readonly float $sendAgain = 0.5,
    ) {
        if ($regions === []) {
            throw new \InvalidArgumentException('a publisher needs the AMQP URLs of one region at least');
        }
        $listed = array_map(fn (string $region) => array_map('trim', explode(',', $region)), $regions);
        $urls = array_merge(...array_values($listed));
        foreach ($urls as $number => $url) {
            // Copies and repeats beside those of the window.
            $this->entrances[] = new Entrance($number, $url, $appId, 2 * $window, count($urls) === 1, $this);
        }
        $this->choice = new Choice(array_map(count(...), $listed), $sendAgain);
    }

    /**
     * Publish, and return when the message is routed (receipt: false: confirmed). Options as for send().
     *
     * @throws PublishError Rejected, Returned, AccessRefused or Unanswered
     */
    public function publish(string $topic, mixed $body, mixed ...$options): Published
    {
        return $this->send($topic, $body, ...$options)->published();
    }

    /**
     * Begin to publish; the returned object has published(). Waits while $window messages are on their way.
     *
     * A string counts as JSON; any other value is written as JSON. docs/publishing.md explains each
     * option; messageId is made if it is absent, expiration is in ms, receipt and copies default to the
     * publisher's.
     *
     * @throws Rejected for text in $body that is no UTF-8
     * @throws \InvalidArgumentException for values that AMQP can't carry
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
        // AMQP 0-9-1 section 4.2.5.3. Checked here, because later it would cost the connection.
        foreach ([$topic, $messageId, $this->appId, $type ?? ''] as $text) {
            if (strlen($text) > self::MAX_TEXT) {
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
            'timestamp' => intdiv($milliseconds, 1000),
            'type' => $type,
            'expiration' => $expiration === null ? null : (string) $expiration,
            'application_headers' => new AMQPTable(array_filter($headers, fn ($value) => $value !== null)),
        ];
        $sending = new Sending(
            $this,
            $messageId,
            $topic,
            is_string($body) ? $body : self::json($body),
            array_filter($properties, fn ($value) => $value !== null),
            $receipt ?? $this->receipt,
            $copies ?? $this->copies,
            self::now() + $this->timeout,
        );
        $sending->answer = $this->beyondLimits($sending->body, $headers);
        if ($sending->isDone()) {
            return $sending;
        }
        if (self::now() >= $this->nextCheck) {
            // A program that only sends must notice, too, that no broker answers.
            $this->step(0.0);
        }
        while (count($this->waiting) >= $this->window) {
            $this->step();
        }
        $this->waiting[$sending->secret] = $sending;
        $this->offer($sending);
        return $sending;
    }

    /**
     * @throws Rejected for text that is no UTF-8, such as a headline that was cut inside an emoji, and for INF and NAN
     * @throws \JsonException for other values that JSON can't express
     */
    private static function json(mixed $body): string
    {
        try {
            return json_encode($body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
        } catch (\JsonException $error) {
            if ($error->getCode() === JSON_ERROR_INF_OR_NAN) {
                throw new Rejected('not_json', 'JSON has no infinity and no NaN');
            }
            $place = $error->getCode() === JSON_ERROR_UTF8 ? self::misspelt($body, 'body') : null;
            throw $place === null ? $error : new Rejected('not_utf8', "$place isn't UTF-8");
        }
    }

    /** The place in $value of text that is no UTF-8, null for none. */
    private static function misspelt(mixed $value, string $name): ?string
    {
        if (is_string($value)) {
            return preg_match('//u', $value) ? null : $name;
        }
        foreach (is_iterable($value) || is_object($value) ? $value : [] as $key => $inner) {
            $found = self::misspelt((string) $key, "a key of $name") ?? self::misspelt($inner, "$name.$key");
            if ($found !== null) {
                return $found;
            }
        }
        return null;
    }

    /** Values that would cost a channel or connection, refused in a router's words. */
    private function beyondLimits(string $body, array $headers): ?Rejected
    {
        $size = strlen($body);
        if ($size > self::MAX_BODY) {
            return new Rejected('too_large', "$size bytes, at most " . self::MAX_BODY . '; it was not sent');
        }
        foreach (['key', 'traceparent'] as $name) {
            $size = strlen($headers[$name] ?? '');
            if ($size > self::MAX_TEXT) {
                return new Rejected('bad_header', "$name has $size bytes, at most " . self::MAX_TEXT);
            }
        }
        return null;
    }

    /** Wait until no message is on its way any more. */
    public function wait(): void
    {
        while ($this->waiting !== []) {
            $this->step();
        }
    }

    /** Wait for messages on their way, then close. */
    public function close(): void
    {
        $this->wait();
        foreach ($this->entrances as $entrance) {
            $entrance->close();
        }
    }

    /** Wait $seconds at most for answers, take them, send overdue messages again. @internal */
    public function step(float $seconds = self::CHECK_EVERY): void
    {
        $microseconds = (int) ($seconds * 1e6);
        $sockets = array_filter(array_map(fn (Entrance $e) => $e->socket(), $this->entrances));
        $none = null;
        if ($sockets === []) {
            usleep($microseconds);
        } else {
            // A signal cuts the wait short: no harm.
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
        foreach ($this->entrances as $entrance) {
            $entrance->leaveIfSilent($now);
        }
        foreach ($this->waiting as $sending) {
            if ($now >= $sending->deadline) {
                $trouble = implode('; ', array_filter([$this->troubles(), $sending->trouble]));
                $sent = $sending->tries > 0;
                $this->settle($sending, new Unanswered($sending->messageId, $this->timeout, $trouble, $sent));
            } elseif ($now >= $sending->due) {
                $this->offer($sending);
            }
        }
    }

    /** Hand it to brokers of as many regions as wanted, to others each time: none is relied on. */
    private function offer(Sending $sending): void
    {
        $chosen = [];
        foreach ($this->choice->order($sending->handed) as $number) {
            $region = $this->choice->region($number);
            // Unneeded brokers get no connection.
            if (count($chosen) < $sending->copies && !isset($chosen[$region])
                && !isset($sending->returned[$number]) && $this->entrances[$number]->isUsable($sending->deadline)) {
                $chosen[$region] = $this->entrances[$number];
            }
        }
        // Connecting may have taken some time.
        $now = self::now();
        if ($chosen === []) {
            $sending->due = $now + self::CHECK_EVERY;
            if ($this->choice->isInEachRegion(array_keys($sending->returned))) {
                $this->settle($sending, new Returned(implode('; ', $sending->returned)));
            } elseif ($sending->tries === 0 && array_filter($this->entrances, fn (Entrance $e) => !$e->refused) === []) {
                $this->settle($sending, new AccessRefused($this->troubles()));
            }
            return;
        }
        $isNew = $sending->tries === 0;
        $sending->begin($now, $this->choice->patience());
        foreach ($chosen as $entrance) {
            $sending->handed[] = [$entrance->number, $now];
            $entrance->publish($sending);
        }
        foreach ($isNew ? $this->choice->probed($sending->secret, $sending->handed, $now) : [] as $number) {
            if ($this->entrances[$number]->isUsable($sending->deadline)) {
                $this->entrances[$number]->publish($sending);
            }
        }
    }

    private function troubles(): string
    {
        return implode('; ', array_filter(array_map(fn (Entrance $e) => $e->trouble, $this->entrances)));
    }

    private function answered(Entrance $by, string $secret): void
    {
        $this->choice->heard($by->number, $secret, self::now());
        if (isset($this->waiting[$secret])) {
            $this->choice->answered($by->number, $this->waiting[$secret]->handed, self::now());
        }
    }

    /** The first answer counts. */
    private function settle(Sending $sending, Published|PublishError $answer): void
    {
        if ($sending->answer === null) {
            $sending->answer = $answer;
            unset($this->waiting[$sending->secret]);
        }
    }

    /** @internal */
    public function onConfirmed(Sending $sending, Entrance $by): void
    {
        if (!$sending->receipt) {
            $this->answered($by, $sending->secret);
            $this->settle($sending, new Published($sending->messageId, false));
        }
    }

    /** @internal */
    public function onReturned(string $secret, Entrance $by, string $text): void
    {
        if (isset($this->waiting[$secret])) {
            $this->waiting[$secret]->returned[$by->number] = $text;
            $this->waiting[$secret]->due = 0.0;
        }
    }

    /** The message may be lost. A broker that closes the channel for a message gives a reason; '' for none. @internal */
    public function onLost(Sending $sending, Entrance $by, string $words): void
    {
        $reason = Refusal::reason($words, $sending);
        if ($reason !== null) {
            $this->settle($sending, new Rejected($reason, $words));
        } elseif (Refusal::isNoEntrance($words)) {
            $sending->returned[$by->number] = $words;
        }
        $sending->trouble = $words ?: $sending->trouble;
        $sending->due = 0.0;
    }

    /** There may be more than one answer to a message: the first counts. @internal */
    public function onReceipt(Entrance $by, string $secret, string $document): void
    {
        $receipt = json_decode($document, true);
        // A user with the right to write receipts may write any content.
        $field = fn (string $name) => is_string($receipt[$name] ?? null) ? $receipt[$name] : null;
        if (!is_array($receipt) || !in_array($field('status'), ['routed', 'rejected'], true)) {
            return;
        }
        $this->answered($by, $secret);
        $sending = $this->waiting[$secret] ?? null;
        if ($sending === null) {
            return;
        }
        if ($field('status') === 'rejected') {
            $this->settle($sending, new Rejected($field('reason') ?? '?', $field('detail') ?? ''));
        } else {
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
