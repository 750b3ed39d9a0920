/** What a check is, and the two judgements that most of them come to. */
import { getField } from './anatomy.ts';
import { type Bench, type Delivery, type Expectation, isAccepted } from './bench.ts';
import type { Reply } from './client.ts';

/** `critical`: forged events get in. `major`: events are lost, or handled twice. `minor`: a weakness that takes more to hurt. */
export const SEVERITIES = ['critical', 'major', 'minor'] as const;

/** How bad a failure is. */
export type Severity = (typeof SEVERITIES)[number];

/** `look`: nothing is wrong from outside, and only the app can tell the rest. */
export type Verdict = 'holds' | 'fails' | 'look' | 'not_applicable' | 'skipped';

/** What a check found. */
export interface Finding {
  readonly verdict: Verdict;
  /** What came back, or why nothing was sent. */
  readonly came: string;
  /** What to do next, where that can be told. */
  readonly advice?: string;
  /** Judges again once everything was sent, as an app may handle events after it answered. */
  readonly later?: () => Promise<Finding>;
}

/** Headings of the report. */
export const GROUPS = {
  genuine: 'Genuine deliveries get in',
  forged: 'Forged deliveries stay out',
  time: 'Time',
  once: 'Each event once',
  answers: 'Answers',
} as const;

/** A heading's key. */
export type Group = keyof typeof GROUPS;

/** One check. The texts are the report's and the documentation's. */
export interface Check {
  readonly id: string;
  readonly group: Group;
  readonly severity: Severity;
  readonly sent: string;
  readonly expected: string;
  /** What its failure leads to in practice. */
  readonly cost: string;
  /** It judges what the others saw, so it comes after them. */
  readonly isLast?: true;
  run(bench: Bench): Promise<Finding>;
}

/** The scheme or the sample has nothing that could be tried. */
export function notApplicable(why: string): Finding {
  return { verdict: 'not_applicable', came: why };
}

/** An entry of the signature header by a key that nobody has. */
export function toForeignEntry({ anatomy }: Bench, delivery: Delivery): string {
  const { prefix, encoded } = anatomy.split(getField(anatomy.sign(delivery, anatomy.foreignKey), anatomy.signatureName));
  return `${prefix}${encoded}`;
}

/** A delivery and its answer. */
export interface Sent {
  readonly delivery: Delivery;
  readonly reply: Reply;
}

/** Sends them one after the other. */
export async function sendAll(bench: Bench, deliveries: readonly Delivery[], expects: Expectation): Promise<Sent[]> {
  const sent: Sent[] = [];
  for (const delivery of deliveries) sent.push({ delivery, reply: await bench.send(delivery, expects) });
  return sent;
}

/** Holds where all are answered 2xx. */
export async function expectAccepted(bench: Bench, ...deliveries: readonly Delivery[]): Promise<Finding> {
  const sent = await sendAll(bench, deliveries, 'in');
  return { verdict: sent.every(({ reply }) => isAccepted(reply)) ? 'holds' : 'fails', came: describe(sent), ...advise(sent) };
}

/** Holds where all are answered, and none 2xx. */
export async function expectRefused(bench: Bench, ...deliveries: readonly Delivery[]): Promise<Finding> {
  const sent = await sendAll(bench, deliveries, 'out');
  const isRefused = sent.every(({ reply }) => 'status' in reply && !isAccepted(reply) && reply.status !== 429);
  return { verdict: isRefused ? 'holds' : 'fails', came: describe(sent), ...advise(sent) };
}

/** A status, or why there is none. */
export function toOutcome(reply: Reply): string {
  return 'status' in reply ? String(reply.status) : reply.failure;
}

/** The answers in one line; alike ones are not repeated. */
export function describe(sent: readonly Sent[]): string {
  const outcomes = new Set(sent.map(({ reply }) => toOutcome(reply)));
  const [first = 'nothing'] = outcomes;
  if (outcomes.size <= 1) return sent.length === 1 ? first : `${first} to ${sent.length === 2 ? 'both' : `all ${sent.length}`}`;
  return sent.map(({ delivery, reply }) => `${toOutcome(reply)} to ${delivery.label}`).join('; ');
}

/** A limit of requests hides what would have been judged. */
function advise(sent: readonly Sent[]): { advice?: string } {
  const isLimited = sent.some(({ reply }) => 'status' in reply && reply.status === 429);
  return isLimited
    ? { advice: 'the endpoint limits its requests (429): lift the limit for the probe, or give --parallel 1' }
    : {};
}
