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
 * Chooses the brokers of a message, and the time to wait for its answer. Pure: time is passed in, in ms.
 *
 * <p>newsfabric/publish/choice.py is the same in Python and gives the reasons. In short: a publisher stays with one
 * broker of the nearest region, chosen at random. A broker that is silent until another one answers is doubted: it is
 * used after others, and gets a copy now and then, until it answers in time. Where answers are slow the first pause
 * grows.
 */
final class Choice {
  /** Note that a broker was given a message. */
  record Handed(int broker, long at) {}

  /** The longest first pause, where answers are slow. */
  private static final long SLOW = 2_000;

  /** Time between copies to a doubted broker. */
  private static final long PROBE_EVERY = 2_000;

  /** The state of one broker; {@code inTime} is the time of its last answer in time. */
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

  /** {@code regions} has each region's number of brokers, nearest first; brokers are numbered in this order. */
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

  /** The present length of the first pause: until then an answer is in time. */
  synchronized long patience() { return Math.max(sendAgain, Math.min((long) (4 * usual), SLOW)); }

  /** The {@code usable} brokers that get a message now: one in each of {@code copies} regions. */
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

  /** The doubted brokers of {@code usable} that get a copy of the new message {@code id} beside others. */
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

  /** Note an answer to message {@code id} from {@code broker}, awaited or not. */
  synchronized void heard(int broker, String id, long now) {
    Standing standing = brokers.get(broker);
    if (standing.doubted && id.equals(standing.probe) && now - standing.probed <= patience()) {
      trust(standing, now);
    }
  }

  /** Note the first answer to a message, from {@code broker}. */
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

  /** True if {@code some} brokers have one of each region. */
  boolean isInEachRegion(Collection<Integer> some) {
    return some.stream().map(this::region).distinct().count() == regions;
  }

  private static void trust(Standing broker, long now) {
    broker.inTime = now;
    broker.doubted = false;
  }
}
