<?php

/** Publishes one headline and prints its identity: php example.php REGION … (nearest first). */

declare(strict_types=1);

require __DIR__ . '/autoload.php';

$publisher = new Newsfabric\Publisher(array_slice($argv, 1), appId: 'cms');
try {
    $published = $publisher->publish('news.breaking', ['headline' => 'Comet seen over the bay'], key: 'comet', version: 1);
    echo $published->identity, "\n";
} catch (Newsfabric\Rejected $error) {
    fwrite(STDERR, "it can't be accepted: {$error->getMessage()}\n");
    exit(1);
} finally {
    $publisher->close();
}
