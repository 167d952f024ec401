<?php

/** The program that tests/clients runs; tests/clients/driver.py describes it. */

declare(strict_types=1);

require __DIR__ . '/../autoload.php';

function camel(array $given): array
{
    $named = [];
    foreach ($given as $name => $value) {
        $named[lcfirst(str_replace('_', '', ucwords($name, '_')))] = $value;
    }
    return $named;
}

function snake(object $value): array
{
    $named = [];
    foreach (get_object_vars($value) as $name => $field) {
        $named[strtolower(preg_replace('/[A-Z]/', '_$0', $name))] = $field;
    }
    return $named;
}

function outcome(Newsfabric\Sending|string $sending): array
{
    if (is_string($sending)) {
        return ['error' => $sending];
    }
    try {
        return ['published' => snake($sending->published())];
    } catch (Newsfabric\PublishError $error) {
        $fields = array_filter(['reason' => $error->reason ?? null, 'message_id' => $error->messageId ?? null]);
        $fields += $error instanceof Newsfabric\Unanswered ? ['sent' => $error->sent] : [];
        $fields += $error instanceof Newsfabric\AccessRefused ? ['text' => $error->getMessage()] : [];
        return ['error' => substr(strrchr($error::class, '\\'), 1)] + $fields;
    }
}

const BODY = '{"headline": "Comet seen over the bay", "padding": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}';

$began = hrtime(true);
$publisher = new Newsfabric\Publisher(...camel(json_decode($argv[1], true)));
$lines = array_map(fn ($line) => json_decode($line, true), file('php://stdin', FILE_IGNORE_NEW_LINES));
$sent = [];
foreach ($lines as $n => $line) {
    $sent[$n] = [];
    for ($i = 0; $i < ($line['many'] ?? 1); $i++) {
        try {
            $sent[$n][] = $publisher->send($line['topic'], $line['body'] ?? BODY, ...camel($line['options'] ?? []));
        } catch (InvalidArgumentException) {
            $sent[$n][] = 'argument';
        }
    }
}
foreach ($lines as $n => $line) {
    $outcomes = array_map(outcome(...), $sent[$n]);
    $failed = count(array_filter($outcomes, fn ($outcome) => isset($outcome['error'])));
    $seconds = (hrtime(true) - $began) / 1e9;
    echo json_encode(isset($line['many']) ? ['seconds' => $seconds, 'failed' => $failed] : $outcomes[0]), "\n";
}
$publisher->close();
