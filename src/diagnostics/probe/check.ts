/** The definition of a check, and the two expectations that most checks have. */

import { type CheckContext, type ExpectedDecision, isAccepted, type ProbeDelivery } from './check-context.ts';
import type { ProbeReply } from './client.ts';
import { getField } from './probed-scheme.ts';

/** `critical`: forged events are accepted. `major`: events are lost, or handled twice. `minor`: a weakness that is harder to exploit. */
export const SEVERITIES = ['critical', 'major', 'minor'] as const;

/** How bad a failure is. */
export type CheckSeverity = (typeof SEVERITIES)[number];

/** `see`: the responses are correct, but only the app knows the rest, so a person must see for themselves. */
export type Outcome = 'passed' | 'failed' | 'see' | 'not_applicable' | 'skipped';

/** The result of a check. */
export interface CheckFinding {
  readonly outcome: Outcome;
  /** The replies, or why nothing was sent. */
  readonly actual: string;
  /** What to do next, if known. */
  readonly advice?: string;
  /** Decides after everything was sent, because an app may handle events after it responded. */
  readonly later?: () => Promise<CheckFinding>;
}

/** The sections of the report and their headings. */
export const GROUPS = {
  valid: 'Valid deliveries are accepted',
  forged: 'Forged deliveries are rejected',
  time: 'Timestamps',
  once: 'Each event is handled once',
  responses: 'Responses',
} as const;

/** A section of the report. */
export type Group = keyof typeof GROUPS;

/** One check. The report and the documentation show its texts. */
export interface Check {
  readonly id: string;
  readonly group: Group;
  readonly severity: CheckSeverity;
  readonly sent: string;
  readonly expected: string;
  /** The practical impact of a failure. */
  readonly impact: string;
  /** It evaluates the replies to the other checks, so it runs after them. */
  readonly isLast?: true;
  run(context: CheckContext): Promise<CheckFinding>;
}

/** The check does not apply to the scheme or the sample. */
export function notApplicable(why: string): CheckFinding {
  return { outcome: 'not_applicable', actual: why };
}

/** A signature with another key, as an entry of the signature header. */
export function toForeignEntry({ scheme }: CheckContext, delivery: ProbeDelivery): string {
  const { prefix, encoded } = scheme.split(getField(scheme.sign(delivery, scheme.foreignKey), scheme.signatureName));
  return `${prefix}${encoded}`;
}

/** A delivery and its reply. */
export interface Sent {
  readonly delivery: ProbeDelivery;
  readonly reply: ProbeReply;
}

/** Sends deliveries one after the other. */
export async function sendAll(
  context: CheckContext,
  deliveries: readonly ProbeDelivery[],
  expects: ExpectedDecision,
): Promise<Sent[]> {
  const sent: Sent[] = [];
  for (const delivery of deliveries) sent.push({ delivery, reply: await context.send(delivery, expects) });
  return sent;
}

/** Passes if all replies are 2xx. */
export async function expectAccepted(context: CheckContext, ...deliveries: readonly ProbeDelivery[]): Promise<CheckFinding> {
  const sent = await sendAll(context, deliveries, 'accept');
  return {
    outcome: sent.every(({ reply }) => isAccepted(reply)) ? 'passed' : 'failed',
    actual: describeReplies(sent),
    ...advise(sent),
  };
}

/** Passes if there are responses to all, and none is 2xx. */
export async function expectRejected(context: CheckContext, ...deliveries: readonly ProbeDelivery[]): Promise<CheckFinding> {
  const sent = await sendAll(context, deliveries, 'reject');
  const isRejected = sent.every(({ reply }) => 'status' in reply && !isAccepted(reply) && reply.status !== 429);
  return { outcome: isRejected ? 'passed' : 'failed', actual: describeReplies(sent), ...advise(sent) };
}

/** The status, or why there is none. */
function describeReply(reply: ProbeReply): string {
  return 'status' in reply ? String(reply.status) : reply.failure;
}

/** The replies in one line, without repetitions. */
export function describeReplies(sent: readonly Sent[]): string {
  const texts = new Set(sent.map(({ reply }) => describeReply(reply)));
  const [first = 'nothing'] = texts;
  if (texts.size <= 1) return sent.length === 1 ? first : `${first} to ${sent.length === 2 ? 'both' : `all ${sent.length}`}`;
  return sent.map(({ delivery, reply }) => `${describeReply(reply)} to ${delivery.label}`).join('; ');
}

/** A rate limit hides the actual decision. */
function advise(sent: readonly Sent[]): { advice?: string } {
  const isLimited = sent.some(({ reply }) => 'status' in reply && reply.status === 429);
  return isLimited
    ? { advice: 'the endpoint rate-limits requests (429): raise the limit for the probe, or use --parallel 1' }
    : {};
}
