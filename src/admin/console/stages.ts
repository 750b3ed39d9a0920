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

/** `failed`: the app did not respond, or not with a status below 400; `answered`: a duplicate, a handshake and the like. */
export const OUTCOMES = ['forwarded', 'failed', 'answered', 'rejected'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** The form of the signature headers is checked before their time. */
const BEFORE_TIMESTAMP: ReadonlySet<Reason> = new Set(['missing_signature', 'malformed_signature']);
const UPSTREAM = /^upstream_/;
const AGE = /^(\d{1,15}) s (old|ahead)$/;

/** How the request ended. */
export function toOutcome({ line: { code, status, reason } }: Pick<JournalEntry, 'line'>): Outcome {
  if (UPSTREAM.test(code) || (code === 'forwarded' && reason !== 'ok' && reason.startsWith('upstream_'))) return 'failed';
  if (code === 'forwarded') return status < 400 ? 'forwarded' : 'failed';
  if (code === 'allowed') return 'forwarded';
  return status < 300 ? 'answered' : 'rejected';
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
  const { line } = entry;
  const outcome = toOutcome(entry);
  // In observe mode, `reason` says why the request would have been rejected, but it was forwarded.
  const stoppedBy = line.observed === undefined && outcome !== 'forwarded' ? toStopped(entry) : undefined;
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

function toStopped({ details }: JournalEntry): StageName {
  // The app failed after it had the request.
  return details?.stoppedAt ?? 'app';
}

function isChecked(name: StageName, { line }: JournalEntry, route: RouteConfig | undefined): boolean {
  switch (name) {
    case 'arrived':
    case 'route':
    case 'app':
      return true;
    case 'content':
      return false;
    case 'login':
      return line.user !== undefined || line.certificate !== undefined || route?.basic !== undefined;
    case 'timestamp':
    case 'signature':
    case 'dedup':
      return route?.webhook !== undefined || line.key !== undefined;
  }
}

function toPassed(name: StageName, { line: { reason, observed, key }, details }: JournalEntry): Stage['result'] {
  if (observed !== undefined && details?.stoppedAt === name) return 'stopped';
  if (name === 'timestamp')
    return BEFORE_TIMESTAMP.has(reason) || (key !== undefined && details?.signedAt === undefined) ? 'skipped' : 'passed';
  if (name === 'dedup') return details?.isClaimed === true ? 'passed' : 'skipped';
  return 'passed';
}

function toDetail(name: StageName, entry: JournalEntry, result: Stage['result']): string | null {
  const { line } = entry;
  if (result === 'not_reached') return null;
  if (name === 'timestamp') return toSkewText(entry);
  if (name === 'app' && line.upstreamMs !== undefined) return `${line.status} in ${Math.round(line.upstreamMs)} ms`;
  if (result === 'stopped' || result === 'answered') return line.reason;
  return toProof(name, line) ?? null;
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
