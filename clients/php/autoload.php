<?php

/** For programs without Composer: loads this library, and Debian's php-amqplib if there is no other. */

declare(strict_types=1);

if (!class_exists(PhpAmqpLib\Channel\AMQPChannel::class)) {
    require_once '/usr/share/php/PhpAmqpLib/autoload.php';
}
foreach (['PublishError', 'Published', 'Sending', 'Refusal', 'BrokerLink', 'Choice', 'Entrance', 'Publisher'] as $file) {
    require_once __DIR__ . "/src/$file.php";
}
