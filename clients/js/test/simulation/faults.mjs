/**
 * Faults that can be planted in the library, by name: each replaces one text of one file of src/, as it is loaded.
 *
 * A simulation that finds nothing says something only if it finds these: each within `within` histories, from seed `from`
 * on. Those that begin at 1 took a quarter as many when this was written (2026-11-29). For the others a seed is chosen
 * near the first one that finds them, as they are rare.
 */

export const FAULTS = {
  hasty: {
    says: "a verdict that comes late isn't put off: a blocked page gives up a healthy gateway",
    file: "timers.ts",
    text: "if (!VERDICTS.includes(what)) return false;",
    instead: "if (what) return false;",
    from: 340,
    within: 100,
  },
  hastySecond: {
    says: "a late verdict is put off for no more than a turn of the event loop",
    file: "verdicts.ts",
    text: "late > LATE_MS && times < (isHidden ? MOST.hidden : MOST.seen)",
    instead: "false",
    from: 1110,
    within: 100,
  },
  afterItsEnd: {
    says: "what another handler has ended is called all the same",
    file: "subscriber.ts",
    text: "if (this.#followed.has(interest.key)) call(handler, value);",
    instead: "call(handler, value);",
    from: 330,
    within: 100,
  },
  staleToken: {
    says: "a token counts for whichever question is open",
    file: "login.ts",
    text: "return this.#isAsking && question === this.#question;",
    instead: "return this.#isAsking || question === 0;",
    from: 1,
    within: 120,
  },
  oldNotes: {
    says: "of what a tab wants a new leader keeps the first word, which may have been for another",
    file: "topics.ts",
    text: "known.renew(interest)",
    instead: "undefined",
    from: 1340,
    within: 100,
  },
  twice: {
    says: "what a subscription has had isn't remembered",
    file: "seen.ts",
    text: "if (this.#at.has(identity)) return false;",
    instead: "",
    from: 1,
    within: 20,
  },
  forgottenRequests: {
    says: "a verb of a lost connection isn't sent again",
    file: "requests.ts",
    text: "Object.assign(request, { ref: null, due: Infinity, marked: 0 });",
    instead: "request.due = Infinity;",
    from: 1,
    within: 24,
  },
  impatient: {
    says: "a gateway's retry_after_ms isn't waited for",
    file: "closing.ts",
    text: "return Number.isFinite(asked) ? Math.min(MOST_ASKED_MS, Math.max(0, asked)) : 0;",
    instead: "return 0;",
    from: 1,
    within: 40,
  },
  noClock: {
    says: "what was due in a second is due in an hour when the clock is set back by that",
    file: "timers.ts",
    text: "const setBack = Math.min(0, passed);",
    instead: "const setBack = 0;",
    from: 590,
    within: 100,
  },
  silentOpening: {
    says: "a socket that never opens is waited for without end",
    file: "dialler.ts",
    text: 'this.#options.timers.set("dial",',
    instead: "void (",
    from: 1,
    within: 88,
  },
  neverDead: {
    says: "a gateway that doesn't answer is waited for without end",
    file: "liveness.ts",
    text: "pong: options.onDead",
    instead: "pong: () => {}",
    from: 1,
    within: 20,
  },
  stayingRefused: {
    says: "a topic that was refused isn't asked for again after a login",
    file: "topics.ts",
    text: 'this.#subscribe("refused");',
    instead: "",
    from: 1,
    within: 152,
  },
  leftBehind: {
    says: "who follows a topic no longer doesn't say so",
    file: "topics.ts",
    text: "if (!this.#outbox.mayHave(topic.name)) return",
    instead: "if (topic.name) return",
    from: 1,
    within: 20,
  },
  hammering: {
    says: "waits between attempts don't grow",
    file: "closing.ts",
    text: "return Math.round(random * bound);",
    instead: "return 0;",
    from: 340,
    within: 100,
  },
  noStop: {
    says: "a gateway that says stop is tried again",
    file: "closing.ts",
    text: 'if (advice === "stop" || notice?.reconnect === false) return null;',
    instead: "",
    from: 1,
    within: 40,
  },
  unread: {
    says: "a subscription that a gateway in a hurry left unread isn't asked for again",
    file: "topic.ts",
    text: 'if (this.phase === "again" || this.phase === "asked") return this.subscribe();',
    instead: 'if (this.phase === "again") return this.subscribe();',
    from: 230,
    within: 100,
  },
  gapUntold: {
    says: "gaps aren't reported to pages",
    file: "subscriber.ts",
    text: "if (!resumed || recovered) return;",
    instead: "if (topic) return;",
    from: 1,
    within: 192,
  },
};

/** The text of `file` with this fault in it; an Error if the replaced text isn't in the file exactly once. */
export function plant(name, file, text) {
  const fault = FAULTS[name];
  if (!fault) throw new Error(`no such fault: ${name}`);
  if (file !== fault.file) return text;
  if (text.split(fault.text).length !== 2) throw new Error(`${name}: ${file} has changed`);
  return text.replace(fault.text, () => fault.instead);
}
