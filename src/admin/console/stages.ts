/** The stages that a request passes, in the order of the diagnosis: did it arrive, did the signature verify, did the app respond in time? */
import type { RouteConfig } from '../../config/schema/config.ts';
import { type Reason, STAGES, type StageName } from '../../core/refusal.ts';
import type { JournalEntry } from '../../telemetry/journal/journal.ts';

/** `answered`: sidegate responded instead of the app, without an error; `skipped`: the stage had nothing to check. */
export const STAGE_RESULTS = ['passed', 'stopped', 'answered', 'skipped', 'not_reached'] as const;

/** One stage of one request. */
export interface Stage {
  readonly name: StageName;
  readonly result: (typeof STAGE_RESULTS)[number];
  readonly detail: string | null;
}

/** Worst last; docs/console-api.md explains each. */
export const OUTCOMES = ['forwarded', 'queued', 'answered', 'observed', 'rejected', 'failed'] as const;
export type RequestOutcome = (typeof OUTCOMES)[number];

const NO_CONNECTION = 'no connection';
/** Why the app did not respond. */
const APP_FAILURES: Readonly<Partial<Record<Reason, string>>> = {
  upstream_connect: NO_CONNECTION,
  upstream_timeout: 'no response in time',
  upstream_reset: 'connection broken',
  upstream_invalid_response: 'invalid response',
};
const AGE = /^(\d{1,15}) s (old|ahead)$/;

/** How the request ended. */
export function toOutcome({ line: { code, status, reason, observed }, details }: JournalEntry): RequestOutcome {
  const isAllowed = details?.stoppedAt === 'app' || details?.stoppedAt === 'queued';
  if (reason in APP_FAILURES || (status >= 500 && isAllowed)) return 'failed';
  if (code !== 'forwarded' && code !== 'allowed') return status < 300 ? 'answered' : 'rejected';
  if (code === 'forwarded' && status >= 400) return 'failed';
  if (observed !== undefined) return 'observed';
  return details?.queuedAs === undefined ? 'forwarded' : 'queued';
}

/** Time of arrival minus signed time, in ms; null if the sender signs none, or the request was rejected before. */
export function toSkew({ at, line: { detail }, details }: JournalEntry): number | null {
  if (details?.signedAt !== undefined) return Math.floor(at / 1_000) * 1_000 - Math.floor(details.signedAt / 1_000) * 1_000;
  const [, seconds, direction] = AGE.exec(detail ?? '') ?? [];
  if (seconds === undefined) return null;
  return (direction === 'old' ? 1 : -1) * Number(seconds) * 1_000;
}

/** The signature over the time did not match any key, so any client can have written it. */
export function isClaimedOnly({ line: { key }, details }: Pick<JournalEntry, 'line' | 'details'>): boolean {
  return details?.signedAt !== undefined && key === undefined;
}

/** The stages of a request; `route`: its current config, if it still exists. */
export function toStages(entry: JournalEntry, route: RouteConfig | undefined): Stage[] {
  const outcome = toOutcome(entry);
  // In observe mode, the stage would have stopped the request, but it was forwarded.
  const isStopped = outcome === 'answered' || outcome === 'rejected' || outcome === 'failed';
  const stoppedBy = !isStopped ? undefined : entry.line.observed === undefined ? (entry.details?.stoppedAt ?? 'app') : 'app';
  const names = STAGES.filter((name) => name === stoppedBy || isChecked(name, entry, route));
  const end = stoppedBy === undefined ? names.length : names.indexOf(stoppedBy);
  return names.map((name, index) => {
    const result =
      index > end ? 'not_reached' : index < end ? toPassed(name, entry) : outcome === 'answered' ? 'answered' : 'stopped';
    return { name, result, detail: toDetail(name, entry, result) };
  });
}

/** The stage that stopped the request; null if it was forwarded and the app handled it. */
export function findStopped(stages: readonly Stage[]): StageName | null {
  return stages.find(({ result }) => result === 'stopped' || result === 'answered')?.name ?? null;
}

function isChecked(name: StageName, { line, details }: JournalEntry, route: RouteConfig | undefined): boolean {
  const { webhook } = route ?? {};
  switch (name) {
    case 'arrived':
    case 'route':
      return true;
    case 'content':
      return false;
    case 'login':
      return line.user !== undefined || line.certificate !== undefined || route?.basic !== undefined;
    case 'timestamp':
      return details?.signedAt !== undefined || webhook?.tolerance !== undefined;
    case 'signature':
    case 'dedup':
      return webhook !== undefined || line.key !== undefined;
    case 'queued':
    case 'app':
      return (name === 'queued') === isQueued(details, line.upstreamMs === undefined && webhook?.ack === 'onAccept');
  }
}

/** `mayBe`: for a request that did not get so far. */
function isQueued(details: JournalEntry['details'], mayBe: boolean): boolean {
  return details?.queuedAs !== undefined || details?.stoppedAt === 'queued' || mayBe;
}

function toPassed(name: StageName, { line: { observed }, details }: JournalEntry): Stage['result'] {
  if (observed !== undefined && details?.stoppedAt === name) return 'stopped';
  if (name === 'timestamp') return details?.signedAt === undefined ? 'skipped' : 'passed';
  if (name === 'dedup') return details?.isClaimed === true ? 'passed' : 'skipped';
  return 'passed';
}

function toDetail(name: StageName, entry: JournalEntry, result: Stage['result']): string | null {
  const { line } = entry;
  if (result === 'not_reached') return null;
  if (name === 'timestamp') return toSkewText(entry);
  if ((name === 'app' || name === 'queued') && line.upstreamMs !== undefined) return toAppText(line, result);
  if (result === 'stopped' || result === 'answered') return line.reason;
  return toProof(name, line) ?? null;
}

/** The result of the app or of the queue. A status of sidegate is not one of the app. */
function toAppText({ code, reason, status, upstreamMs = 0 }: JournalEntry['line'], result: Stage['result']): string {
  const failure = APP_FAILURES[reason] ?? (result === 'stopped' && code !== 'forwarded' ? reason : undefined);
  const ms = Math.round(upstreamMs);
  if (reason === 'upstream_connect') return NO_CONNECTION;
  return failure === undefined ? `${status} in ${ms} ms` : `${failure} after ${ms} ms`;
}

/** The route, user or key that made the request pass the stage. */
function toProof(name: StageName, { route, user, certificate, key }: JournalEntry['line']): string | undefined {
  if (name === 'route') return route;
  if (name === 'login') return user ?? certificate;
  return name === 'signature' ? key : undefined;
}

function toSkewText(entry: JournalEntry): string | null {
  const skew = toSkew(entry);
  if (skew === null) return null;
  const text = skew < 0 ? `${-skew / 1_000} s ahead` : `${skew / 1_000} s old`;
  return isClaimedOnly(entry) ? `${text}, not verified` : text;
}
