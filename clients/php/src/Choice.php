<?php

declare(strict_types=1);

namespace Newsfabric;

/**
 * Chooses the brokers of a message, and the time to wait for its answer. Pure: time is passed in, in seconds.
 *
 * newsfabric/publish/choice.py is the same in Python and gives the reasons. In short: a publisher stays with one broker
 * of the nearest region, chosen at random. A broker that is silent until another one answers is doubted: it is used
 * after others, and gets a copy now and then, until it answers in time. Where answers are slow the first pause grows.
 *
 * @internal
 */
final class Choice
{
    /** The longest first pause, where answers are slow. */
    private const SLOW = 2.0;
    /** Time between copies to a doubted broker. */
    private const PROBE_EVERY = 2.0;

    private float $usual = 0.0;
    /** @var int[] the region of each broker */
    private array $region = [];
    /** @var int[] its place in the order of its region's brokers */
    private array $place = [];
    /** @var array<int, float> the time of its last answer in time */
    private array $inTime = [];
    /** @var array<int, true> */
    private array $doubted = [];
    /** @var array<int, array{string, float}> the message that a doubted one got a copy of, and the time */
    private array $probes = [];

    /** @param int[] $regions each region's number of brokers, nearest first; brokers are numbered in this order */
    public function __construct(array $regions, private readonly float $sendAgain)
    {
        foreach (array_values($regions) as $region => $count) {
            $places = range(0, $count - 1);
            shuffle($places);
            array_push($this->place, ...$places);
            array_push($this->region, ...array_fill(0, $count, $region));
        }
    }

    /** The present length of the first pause: until then an answer is in time. */
    public function patience(): float
    {
        return max($this->sendAgain, min(4 * $this->usual, self::SLOW));
    }

    /** All brokers in the order of use. @param array{int, float}[] $handed @return int[] */
    public function order(array $handed): array
    {
        $times = array_count_values(array_column($handed, 0));
        $brokers = array_keys($this->region);
        $rank = fn (int $n) => [$times[$n] ?? 0, isset($this->doubted[$n]), $this->region[$n], $this->place[$n]];
        usort($brokers, fn (int $one, int $other) => $rank($one) <=> $rank($other));
        return $brokers;
    }

    public function region(int $broker): int
    {
        return $this->region[$broker];
    }

    /** The doubted brokers that get a copy of the new message $id, which was $handed to others. @return int[] */
    public function probed(string $id, array $handed, float $now): array
    {
        $due = array_filter(array_keys($this->doubted), fn (int $n) =>
            $now - $this->probes[$n][1] >= self::PROBE_EVERY && !in_array($n, array_column($handed, 0), true));
        foreach ($due as $broker) {
            $this->probes[$broker] = [$id, $now];
        }
        return $due;
    }

    /** Note an answer to message $id from $broker, awaited or not. */
    public function heard(int $broker, string $id, float $now): void
    {
        [$probe, $at] = $this->probes[$broker] ?? ['', 0.0];
        if ($probe === $id && $now - $at <= $this->patience()) {
            $this->trust($broker, $now);
        }
    }

    /** Note the first answer to a message, from $broker. @param array{int, float}[] $handed brokers and times */
    public function answered(int $broker, array $handed, float $now): void
    {
        $first = array_search($broker, array_column($handed, 0), true);
        if ($first === false) {
            return;
        }
        $since = $handed[$first][1];
        if ($now - $since <= $this->patience()) {
            $this->trust($broker, $now);
        }
        foreach ($handed as [$other, $at]) {
            if ($at < $since && ($this->inTime[$other] ?? -INF) < $at && !isset($this->doubted[$other])) {
                $this->doubted[$other] = true;
                $this->probes[$other] = ['', $now];
            }
        }
        $this->usual += ($now - $since - $this->usual) / 8;
    }

    /** @param int[] $brokers */
    public function isInEachRegion(array $brokers): bool
    {
        return count(array_unique(array_map($this->region(...), $brokers))) === count(array_unique($this->region));
    }

    private function trust(int $broker, float $now): void
    {
        $this->inTime[$broker] = $now;
        unset($this->doubted[$broker], $this->probes[$broker]);
    }
}
