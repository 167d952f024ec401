package io.newsfabric.publish;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;

/**
 * Which broker a message goes by, and how long its answer is waited for. Pure: time is passed in, in ms.
 *
 * <p>newsfabric/publish/choice.py is the same in Python and says why. In short: a publisher stays with one broker of
 * the nearest region, chosen at random. One that is silent until another answers is doubted: it comes after others, and
 * gets a copy now and then, until it answers in time. Where answers take long the first pause grows.
 */
final class Choice {
  /** A broker was given a message. */
  record Handed(int broker, long at) {}

  /** As long may the first pause become where answers are slow. */
  private static final long SLOW = 2_000;

  /** Time between copies that go by a doubted broker. */
  private static final long PROBE_EVERY = 2_000;

  /** How one broker has done so far; {@code inTime} is when it last answered in time. */
  private static final class Standing {
    final int region;
    final int place;
    Long inTime;
    boolean doubted;
    String probe;
    long probed;

    Standing(int region, int place) {
      this.region = region;
      this.place = place;
    }
  }

  private final List<Standing> brokers = new ArrayList<>();
  private final int regions;
  private final long sendAgain;
  private double usual;

  /** {@code regions} is how many brokers each has, nearest first; brokers are numbered in this order. */
  Choice(List<Integer> regions, long sendAgain, Random random) {
    this.regions = regions.size();
    this.sendAgain = sendAgain;
    for (int region = 0; region < regions.size(); region++) {
      List<Integer> places = new ArrayList<>(IntStream.range(0, regions.get(region)).boxed().toList());
      Collections.shuffle(places, random);
      for (int place : places) {
        brokers.add(new Standing(region, place));
      }
    }
  }

  int region(int broker) { return brokers.get(broker).region; }

  /** How long the first pause is now: until then an answer is in time. */
  synchronized long patience() { return Math.max(sendAgain, Math.min((long) (4 * usual), SLOW)); }

  /** Those of {@code usable} brokers that get a message now: one each of {@code copies} regions. */
  synchronized List<Integer> among(Collection<Integer> usable, List<Handed> course, int copies) {
    Map<Integer, Integer> chosen = new LinkedHashMap<>();
    usable.stream()
        .sorted(Comparator.<Integer>comparingLong(n -> course.stream().filter(h -> h.broker == n).count())
            .thenComparing(n -> brokers.get(n).doubted)
            .thenComparing(n -> brokers.get(n).region)
            .thenComparing(n -> brokers.get(n).place))
        .forEach(n -> chosen.putIfAbsent(brokers.get(n).region, n));
    return chosen.values().stream().limit(copies).toList();
  }

  /** Doubted ones of {@code usable} that get a copy of the new message {@code id} beside others. */
  synchronized List<Integer> probed(Collection<Integer> usable, List<Handed> course, String id, long now) {
    List<Integer> due = usable.stream()
        .filter(n -> brokers.get(n).doubted && now - brokers.get(n).probed >= PROBE_EVERY)
        .filter(n -> course.stream().noneMatch(handed -> handed.broker == n))
        .toList();
    for (int n : due) {
      brokers.get(n).probe = id;
      brokers.get(n).probed = now;
    }
    return due;
  }

  /** An answer to message {@code id} came by {@code broker}, whether one waits for it or not. */
  synchronized void heard(int broker, String id, long now) {
    Standing standing = brokers.get(broker);
    if (standing.doubted && id.equals(standing.probe) && now - standing.probed <= patience()) {
      trust(standing, now);
    }
  }

  /** The first answer to a message came by {@code broker}. */
  synchronized void answered(int broker, List<Handed> course, long now) {
    var first = course.stream().filter(handed -> handed.broker == broker).findFirst();
    if (first.isEmpty()) {
      return;
    }
    long since = first.get().at;
    if (now - since <= patience()) {
      trust(brokers.get(broker), now);
    }
    for (Handed handed : course) {
      Standing other = brokers.get(handed.broker);
      if (handed.at < since && !other.doubted && (other.inTime == null || other.inTime < handed.at)) {
        other.doubted = true;
        other.probe = null;
        other.probed = now;
      }
    }
    usual += (now - since - usual) / 8;
  }

  /** Whether {@code some} brokers have one of each region. */
  boolean isInEachRegion(Collection<Integer> some) {
    return some.stream().map(this::region).distinct().count() == regions;
  }

  private static void trust(Standing broker, long now) {
    broker.inTime = now;
    broker.doubted = false;
  }
}
