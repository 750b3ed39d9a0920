/** The findings of an injection: reasons to deny the pod, and warnings for its owner. */
import type { DenyReason } from './outcome.ts';

/** Of each kind; a response shows fewer. A pod can have thousands of ports and mounts. */
const MAX_FINDINGS = 64;

/** Collects all findings, so that they can be fixed at once. */
export class Findings {
  readonly #denials: { readonly reason: DenyReason; readonly message: string }[] = [];
  readonly #warnings: string[] = [];

  deny(reason: DenyReason, message: string): void {
    if (this.#denials.length < MAX_FINDINGS) this.#denials.push({ reason, message });
  }

  warn(message: string): void {
    if (this.#warnings.length < MAX_FINDINGS) this.#warnings.push(message);
  }

  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /** The reason of the first denial, and the messages of all. */
  get denial(): { readonly reason: DenyReason; readonly message: string } | undefined {
    const [first] = this.#denials;
    if (first === undefined) return undefined;
    return { reason: first.reason, message: this.#denials.map(({ message }) => message).join('; ') };
  }
}
