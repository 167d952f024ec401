<?php

declare(strict_types=1);

namespace Newsfabric;

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPConnectionConfig;
use PhpAmqpLib\Exception\AMQPExceptionInterface;
use PhpAmqpLib\Exception\AMQPIOException;
use PhpAmqpLib\Exception\AMQPProtocolException;
use PhpAmqpLib\Message\AMQPMessage;

/**
 * One broker in the publisher's view: a connection to it, and the queue for receipts from it.
 *
 * It connects on demand. Nothing runs while the program does something else, so there are no
 * heartbeats: a broker that doesn't answer in time is left for another one.
 *
 * @internal
 */
final class Entrance
{
    private const FIRST_PAUSE = 0.2;
    private const LAST_PAUSE = 10.0;
    /** Seconds for which a broker's "blocked" counts: without heartbeats the broker may be gone. */
    private const BLOCKED_PAUSE = 60.0;
    /** Seconds for each step of connecting while there are other brokers to try. */
    private const CONNECT_WITHIN = 1.0;

    /** The reason why there is no connection, null for none. */
    public ?string $trouble = null;
    /** True if waiting won't help: the broker refused the last connection. */
    public bool $refused = false;
    private ?BrokerLink $connection = null;
    private ?AMQPChannel $channel = null;
    /** @var array<string, Sending> by their secret */
    private array $unconfirmed = [];
    /** @var array<string, float> the time of each one's sending, oldest first */
    private array $sentAt = [];
    private float $connectAt = 0.0;
    private float $pause = self::FIRST_PAUSE;
    private float $blockedUntil = 0.0;
    private readonly AMQPConnectionConfig $broker;
    /** Properties of each message here. A user_id that equals the login is checked by the broker. */
    private readonly array $properties;
    /** The queue for receipts of this connection. The broker names it: a publisher's rights cover no other. */
    private string $replyTo = '';

    public function __construct(
        public readonly int $number,
        string $url,
        string $appId,
        /** The most unconfirmed messages: those of a broker that hangs are no burden. */
        private readonly int $room,
        private readonly bool $alone,
        private readonly Publisher $publisher,
    ) {
        $this->broker = self::broker($url);
        $this->properties = $this->broker->getUser() === $appId ? ['user_id' => $appId] : [];
    }

    /**
     * True if it accepts a message now; connects if need be, and if a new try is due. This takes no
     * longer than until $deadline.
     */
    public function isUsable(float $deadline): bool
    {
        $now = Publisher::now();
        if ($this->connection?->isBlocked() && $now >= $this->blockedUntil) {
            $this->lose(null);
        }
        if ($this->channel === null && $now >= $this->connectAt) {
            $this->connect($now, $deadline);
        }
        return $this->channel !== null && !$this->connection->isBlocked() && count($this->unconfirmed) < $this->room;
    }

    /** The stream to wait on for its answers; null without a connection. @return resource|null */
    public function socket()
    {
        return $this->connection?->getIO()->getSocket();
    }

    public function publish(Sending $sending): void
    {
        $this->unconfirmed[$sending->secret] = $sending;
        $this->sentAt[$sending->secret] ??= Publisher::now();
        try {
            $receipts = ['reply_to' => $this->replyTo, 'correlation_id' => $sending->secret];
            $properties = $receipts + $this->properties + $sending->properties;
            $message = new AMQPMessage($sending->body, $properties);
            $this->channel->basic_publish($message, 'publish', $sending->topic, true);
        } catch (AMQPExceptionInterface $error) {
            $this->lose($error);
        }
    }

    /** Take everything that has arrived. */
    public function read(): void
    {
        try {
            while ($this->connection !== null && $this->connection->select(0) > 0) {
                $this->channel->wait(null, true);
            }
        } catch (AMQPExceptionInterface $error) {
            $this->lose($error);
        }
    }

    /** A confirm is overdue: the connection may be dead. A broker that reports itself blocked isn't silent. */
    public function leaveIfSilent(float $now): void
    {
        $oldest = reset($this->sentAt);
        if ($oldest !== false && $now - $oldest > BrokerLink::TIMEOUT && !$this->connection?->isBlocked()) {
            $this->lose(null);
            // Another broker can be asked at once.
            $this->connectAt = $now + self::FIRST_PAUSE;
        }
    }

    public function close(): void
    {
        try {
            $this->connection?->close();
        } catch (AMQPExceptionInterface) {
            // The connection is gone in any case.
        }
        $this->connection?->drop();
        $this->connection = $this->channel = null;
    }

    private function connect(float $began, float $deadline): void
    {
        $broker = $this->broker;
        $within = min(max($deadline - $began, 0.001), $this->alone ? BrokerLink::TIMEOUT : self::CONNECT_WITHIN);
        $before = $this->trouble;
        $this->trouble = null;
        $this->refused = false;
        try {
            $this->connection = BrokerLink::to($broker, $within);
            $this->channel = $this->open($this->connection);
        } catch (AMQPExceptionInterface | \ErrorException $error) {
            $where = $broker->getHost() . ':' . $broker->getPort();
            $untrusted = $broker->isSecure() && $error instanceof AMQPIOException ? self::untrusted($broker) : null;
            $this->trouble = "$where: " . ($untrusted ?? $error->getMessage());
            $this->refused = $untrusted !== null || self::refuses($error);
            $this->connection?->drop();
            $this->connection = null;
            if ($this->trouble !== $before) {
                error_log("newsfabric publisher: $this->trouble; trying others");
            }
        }
        $now = Publisher::now();
        // All other work waits during a connect, so it mostly comes first.
        $pause = min(max($this->pause, 3 * ($now - $began)), self::LAST_PAUSE);
        $this->connectAt = $now + $pause * random_int(50, 100) / 100;
        $this->pause = $this->channel === null ? 2 * $pause : self::FIRST_PAUSE;
    }

    /**
     * True if waiting won't help. 530, not-allowed, is for a missing virtual host, but also for too many
     * connections: others leave, or operators raise the limit.
     */
    private static function refuses(\Exception $error): bool
    {
        return in_array($error->getCode(), [403, 530], true)
            && !str_contains($error->getMessage(), 'connection limit');
    }

    private function open(BrokerLink $connection): AMQPChannel
    {
        $connection->set_connection_block_handler(function (string $reason) {
            $this->blockedUntil = Publisher::now() + self::BLOCKED_PAUSE;
            error_log("newsfabric publisher: {$this->broker->getHost()} takes no messages: $reason");
        });
        $channel = $connection->channel();
        $channel->confirm_select();
        $channel->set_ack_handler(fn (AMQPMessage $m) => $this->onConfirm($m, true));
        $channel->set_nack_handler(fn (AMQPMessage $m) => $this->onConfirm($m, false));
        // The return arrives before the confirm of its message.
        $channel->set_return_listener(fn (int $code, string $text, string $exchange, string $topic, AMQPMessage $m) =>
            $this->publisher->onReturned($m->get('correlation_id'), $this, "$code $text, topic $topic"));
        [$this->replyTo] = $channel->queue_declare('', false, false, true, true);
        $channel->basic_consume($this->replyTo, '', false, true, false, false, function (AMQPMessage $m) {
            if ($m->has('correlation_id') && $m->has('type') && $m->get('type') === 'receipt') {
                $this->publisher->onReceipt($this, $m->get('correlation_id'), $m->getBody());
            }
        });
        return $channel;
    }

    private function onConfirm(AMQPMessage $message, bool $taken): void
    {
        $secret = $message->get('correlation_id');
        $sending = $this->unconfirmed[$secret] ?? null;
        unset($this->unconfirmed[$secret], $this->sentAt[$secret]);
        if ($taken && $sending !== null && !isset($sending->returned[$this->number])) {
            $this->publisher->onConfirmed($sending, $this);
        }
        // Refused by the broker: it is sent again when its pause is over.
    }

    private function lose(?AMQPExceptionInterface $error): void
    {
        $lost = $this->unconfirmed;
        $this->unconfirmed = $this->sentAt = [];
        // A broker that closed the channel is alive: the connection can be closed in good order.
        $error instanceof AMQPProtocolException ? $this->close() : $this->connection?->drop();
        $this->connection = $this->channel = null;
        $words = $error instanceof AMQPProtocolException ? $error->getMessage() : '';
        foreach ($lost as $sending) {
            $this->publisher->onLost($sending, $this, $words);
        }
    }

    /** PHP's error about its certificate, null for none: the library doesn't pass it on. */
    private static function untrusted(AMQPConnectionConfig $broker): ?string
    {
        $warnings = [];
        set_error_handler(function (int $_, string $text) use (&$warnings) {
            $warnings[] = str_contains($text, 'certificate') ? strtr($text, "\n", ' ') : null;
        });
        $context = stream_context_create(['ssl' => array_filter(['cafile' => $broker->getSslCaCert()])]);
        $where = "ssl://{$broker->getHost()}:{$broker->getPort()}";
        stream_socket_client($where, $_, $_, BrokerLink::TIMEOUT, STREAM_CLIENT_CONNECT, $context);
        restore_error_handler();
        return array_values(array_filter($warnings))[0] ?? null;
    }

    private static function broker(string $url): AMQPConnectionConfig
    {
        $parts = parse_url($url);
        if ($parts === false || !in_array($parts['scheme'] ?? '', ['amqp', 'amqps'], true) || empty($parts['host'])) {
            throw new \InvalidArgumentException('not an AMQP URL: ' . preg_replace('#//.*@#', '//', $url));
        }
        parse_str($parts['query'] ?? '', $more);
        if (!is_readable($more['cacertfile'] ?? __FILE__)) {
            throw new \InvalidArgumentException("no certificates in {$more['cacertfile']}");
        }
        $secure = $parts['scheme'] === 'amqps';
        $config = new AMQPConnectionConfig();
        $config->setHost($parts['host']);
        $config->setPort($parts['port'] ?? ($secure ? 5671 : 5672));
        $config->setUser(rawurldecode($parts['user'] ?? 'guest'));
        $config->setPassword(rawurldecode($parts['pass'] ?? 'guest'));
        $config->setVhost(rawurldecode(substr($parts['path'] ?? '', 1)) ?: '/');
        $config->setIsSecure($secure);
        // With TLS the library knows no keepalive.
        $config->setKeepalive(!$secure && function_exists('socket_import_stream'));
        $config->setSslCaCert($more['cacertfile'] ?? null);
        $config->setConnectionName('publisher');
        return $config;
    }
}
