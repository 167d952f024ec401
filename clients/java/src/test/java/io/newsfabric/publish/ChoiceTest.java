package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.newsfabric.publish.Choice.Handed;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ChoiceTest {
  private static final List<Integer> BOTH = List.of(0, 1);

  private final Choice choice = new Choice(List.of(2, 1), 500, new Random(0));

  private int first(List<Integer> usable) { return choice.among(usable, List.of(), 1).get(0); }

  /** {@code broker} lets a message pass, {@code other} answers its repeat. */
  private void silent(int broker, int other, long now) {
    choice.answered(other, List.of(new Handed(broker, now), new Handed(other, now + 500)), now + 520);
  }

  @Test
  void publishersAreSpreadOverTheBrokersOfTheNearestRegion() {
    Set<Integer> firsts = new HashSet<>();
    Random random = new Random(0);
    for (int n = 0; n < 50; n++) {
      firsts.add(new Choice(List.of(2, 1), 500, random).among(List.of(0, 1, 2), List.of(), 1).get(0));
    }
    assertEquals(Set.of(0, 1), firsts);
  }

  @Test
  void withoutAnAnswerEachBrokerIsAskedInTurnTheNearestFirst() {
    List<Handed> course = new ArrayList<>();
    for (int now = 0; now < 6; now++) {
      course.add(new Handed(choice.among(List.of(0, 1, 2), course, 1).get(0), now));
    }
    List<Integer> asked = course.stream().map(Handed::broker).toList();
    assertEquals(Set.of(0, 1), new HashSet<>(asked.subList(0, 2)));
    assertEquals(2, asked.get(2));
    assertEquals(asked.subList(0, 3), asked.subList(3, 6));
  }

  @Test
  void copiesGoIntoAsManyRegions() {
    assertEquals(List.of(first(BOTH), 2), choice.among(List.of(0, 1, 2), List.of(), 2));
  }

  @Test
  void oneThatLetsAMessagePassWhichAnotherAnswersIsPassedOver() {
    int usual = first(BOTH);
    silent(usual, 1 - usual, 10_000);
    assertEquals(1 - usual, first(BOTH));
    assertEquals(2, first(List.of(usual, 2)));
    assertEquals(usual, first(List.of(usual)));
  }

  @Test
  void itIsItselfAgainOnceItAnswersACopyInTime() {
    int usual = first(BOTH);
    silent(usual, 1 - usual, 10_000);
    var course = List.of(new Handed(1 - usual, 12_000));
    assertEquals(List.of(), choice.probed(BOTH, course, "m-1", 11_000));
    assertEquals(List.of(usual), choice.probed(BOTH, course, "m-2", 13_000));
    assertEquals(List.of(), choice.probed(BOTH, course, "m-3", 13_100));
    choice.heard(usual, "m-1", 13_100);
    choice.heard(usual, "m-2", 16_000);
    assertEquals(1 - usual, first(BOTH));
    assertEquals(List.of(usual), choice.probed(BOTH, course, "m-4", 17_000));
    choice.heard(usual, "m-4", 17_020);
    assertEquals(usual, first(BOTH));
  }

  @Test
  void theFirstPauseGrowsWhereAnswersTakeSecondsAndShrinksAgain() {
    List<Long> patience = new ArrayList<>(List.of(choice.patience()));
    for (int n = 0; n < 40; n++) {
      choice.answered(0, List.of(new Handed(0, 10_000)), n < 3 ? 13_000 : 10_020);
      patience.add(choice.patience());
    }
    assertEquals(List.of(500L, 1_500L, 2_000L), patience.subList(0, 3));
    assertEquals(500L, patience.get(40));
  }

  @Test
  void itIsReportedWhenEachRegionHasGivenAMessageBack() {
    assertTrue(choice.isInEachRegion(Set.of(1, 2)));
    assertEquals(false, choice.isInEachRegion(Set.of(0, 1)));
  }
}
