<?php

declare(strict_types=1);

namespace Newsfabric;

use PhpAmqpLib\Channel\Frame;
use PhpAmqpLib\Connection\AMQPConnectionConfig;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPNoDataException;

/**
 * A connection that waits for nothing for ever.
 *
 * php-amqplib itself has no limit for the answer to a request over TLS, nor for the rest of a message that
 * has begun to arrive; and what is there of a frame that has begun to arrive it throws away.
 *
 * @internal
 */
final class BrokerLink extends AMQPStreamConnection
{
    /** How long a broker may be silent while it owes something, in seconds. */
    public const TIMEOUT = 3.0;

    /** @param float $within how long each step may take, in seconds */
    public function __construct(private readonly float $within, mixed ...$arguments)
    {
        parent::__construct(...$arguments);
    }

    /** Connect and log in; each step may take $within seconds. */
    public static function to(AMQPConnectionConfig $broker, float $within): self
    {
        $trust = ['verify_peer' => true, 'verify_peer_name' => true, 'cafile' => $broker->getSslCaCert()];
        return new self(
            $within,
            host: $broker->getHost(),
            port: $broker->getPort(),
            user: $broker->getUser(),
            password: $broker->getPassword(),
            vhost: $broker->getVhost(),
            connection_timeout: $within,
            read_write_timeout: self::TIMEOUT,
            context: $broker->isSecure() ? stream_context_create(['ssl' => array_filter($trust)]) : null,
            keepalive: $broker->isKeepalive(),
            config: $broker,
        );
    }

    /** Close at once, without AMQP's close: nobody may be there to answer it. */
    public function drop(): void
    {
        $socket = $this->io->getSocket();
        if (is_resource($socket)) {
            // TLS has a close of its own, and would wait to send it.
            stream_set_blocking($socket, false);
        }
        $this->do_close();
    }

    protected function wait_frame($timeout = 0): Frame
    {
        if ($timeout === null && $this->select(0) === 0) {
            throw new AMQPNoDataException('nothing has arrived');
        }
        return parent::wait_frame($timeout ?: $this->within);
    }

    /** Channels end with their connection: each would wait for its close to be answered. */
    protected function closeChannels(): void
    {
    }
}
