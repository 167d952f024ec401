/** Web Locks: each is held by one tab of an origin at most, and never outlives it. */

/** Resolves when the lock is lost: released (the result of `whenHeld` is settled), stolen, or no longer awaited. */
export async function holdLock(name: string, options: LockOptions, whenHeld: () => unknown): Promise<void> {
  try {
    await navigator.locks.request(name, options, whenHeld);
  } catch (error) {
    if ((error as Error).name !== "AbortError") throw error;
  }
}

interface LocksOptions {
  name: string;
  /** True if this tab, which has the lock, can lead. */
  mayLead: () => boolean;
  onWon: () => void;
  /** The lock is gone: given up, stolen, or no longer awaited. */
  onLost: () => void;
}

/** The lock of the tab that leads. */
export class LeadLock {
  #options;
  #release: (() => void) | null = null;
  #isQueued = false;

  constructor(options: LocksOptions) {
    this.#options = options;
  }

  /** Wait for the lead, until `signal` aborts. */
  async queue(signal: AbortSignal): Promise<void> {
    if (this.#isQueued) return;
    this.#isQueued = true;
    await this.#hold({ signal });
    this.#isQueued = false;
    this.#options.onLost();
  }

  /** Take the lead from a tab that doesn't answer. */
  async steal(): Promise<void> {
    await this.#hold({ steal: true });
    this.#options.onLost();
  }

  async #hold(options: LockOptions): Promise<void> {
    await holdLock(this.#options.name, options, () => {
      if (options.signal) this.#isQueued = false;
      return this.#options.mayLead() ? this.#untilReleased() : undefined;
    });
  }

  #untilReleased(): Promise<void> {
    return new Promise((resolve) => {
      this.#release = resolve;
      this.#options.onWon();
    });
  }

  release(): void {
    this.#release?.();
    this.#release = null;
  }
}
