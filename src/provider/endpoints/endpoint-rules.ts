/** Rules for what an endpoint may be, which the sender and the egress guard define. */
import type { SigningKey } from './endpoint.ts';

/** Why a setting is not accepted, and how to fix it. */
export interface RuleProblem {
  readonly problem: string;
  readonly hint: string;
}

/** A key that does not expire. */
export type NewKey = Pick<SigningKey, 'version' | 'secret'>;

export interface EndpointRules {
  /** Why deliveries cannot be sent to the URL; undefined if they can. Names are not resolved. */
  findUrlProblem(url: string): RuleProblem | undefined;
  /** Why the headers cannot be added to deliveries; undefined if they can. */
  findHeaderProblem(headers: readonly (readonly [name: string, value: string])[]): RuleProblem | undefined;
  /** Parses `whsec_…` or `whsk_…`. */
  parseSecret(text: string): NewKey | RuleProblem;
  createSecret(): NewKey;
  /** The text that `parseSecret` parses; shown once. */
  formatSecret(key: NewKey): string;
  /** The key that receivers verify `v1a` signatures with (`whpk_…`); undefined for `v1`. */
  findPublicKey(key: NewKey): string | undefined;
}
