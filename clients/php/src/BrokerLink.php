<?php

declare(strict_types=1);

namespace Newsfabric;

use PhpAmqpLib\Channel\Frame;
use PhpAmqpLib\Connection\AMQPConnectionConfig;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPNoDataException;

/**
 * A connection with a limit for each wait.
 *
 * php-amqplib has no limit for the answer to a request over TLS, nor for the rest of a message that has
 * begun to arrive; and it throws away the received part of an unfinished frame.
 *
 * @internal
 */
final class BrokerLink extends AMQPStreamConnection
{
    /** Seconds for which a broker may be silent while an answer is due. */
    public const TIMEOUT = 3.0;

    /** @param float $within seconds for each step */
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

    /** Close at once, without AMQP's close: the peer may be gone. */
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

    /** Channels end with their connection: otherwise each would wait for the answer to its close. */
    protected function closeChannels(): void
    {
    }
}
