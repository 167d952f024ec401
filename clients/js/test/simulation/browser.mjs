/** A browser on one device: its tabs, of which one holds the lock of the leader, its clock, and its network. */

import { tokenOf } from "./gateway.mjs";
import { Tab } from "./tab.mjs";

export class Device {
  constructor(world, fabric, regions, sources) {
    Object.assign(this, { world, fabric, regions, sources, tabs: [], links: new Set(), tokens: new Map(), offset: 0, made: 0, tokensMade: 0, linksMade: 0, holder: null });
    this.forbidsWebSocket = world.chance(0.1);
    this.isOffline = this.forbidsSockets = false;
  }

  now() {
    return this.world.now + this.offset;
  }

  open() {
    this.made += 1;
    this.world.note(`tab${this.made}`, "comes");
    return new Tab(this, `tab${this.made}`);
  }

  /** A tab is gone: if it held the lock of the one that leads, the next that waits for it has it. */
  gone(tab) {
    if (this.holder !== tab) return;
    const [next] = this.tabs;
    this.holder = next ?? null;
    if (next) this.world.after(this.world.ms(1, 10), () => next.task("lock", () => this.#won(next)));
  }

  #won(tab) {
    if (this.holder !== tab) return;
    // The tab was the leader before, and doesn't know yet that it isn't any more.
    if (tab.leader) tab.lostLead();
    tab.lead();
  }

  /** A tab takes the lead from one that stands still, which hears of it when it goes on. */
  steal(tab) {
    const old = this.holder;
    this.world.note(tab.id, "takes the lead");
    this.holder = tab;
    tab.task("lock", () => this.#won(tab));
    old?.task("lock", () => this.holder === old || old.lostLead());
  }

  newToken(question) {
    const { world } = this;
    this.tokensMade += 1;
    const isBroken = !world.isHealed && world.chance(0.03);
    const isOther = !world.isHealed && world.chance(0.02);
    const text = tokenOf({ user: isOther ? "7" : "42", number: this.tokensMade, expires: world.now + world.ms(20_000, 600_000), isBroken });
    if (question) this.tokens.set(text, { question, isInTime: false });
    return text;
  }

  gatewayOf({ gateway: { sockjs } }) {
    return this.fabric.gateways.find(({ name }) => sockjs === `http://${name}/sockjs`);
  }
}
