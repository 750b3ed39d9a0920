/** What is found out about a pod on the way: reasons to deny it, and what its owner should know. */
import type { DenyReason } from './outcome.ts';

/** Collects them all, so that nobody has to mend one after the other. */
export class Findings {
  readonly #denials: { readonly reason: DenyReason; readonly message: string }[] = [];
  readonly #warnings: string[] = [];

  deny(reason: DenyReason, message: string): void {
    this.#denials.push({ reason, message });
  }

  warn(message: string): void {
    this.#warnings.push(message);
  }

  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /** The first one's reason, and what all of them say. */
  get denial(): { readonly reason: DenyReason; readonly message: string } | undefined {
    const [first] = this.#denials;
    if (first === undefined) return undefined;
    return { reason: first.reason, message: this.#denials.map(({ message }) => message).join('; ') };
  }
}
