/** What a gate says: pass, or a refusal. */
import type { Refusal } from './refusal.ts';

/** `undefined` is a pass: the common case allocates nothing. */
export type Verdict = Refusal | undefined;
