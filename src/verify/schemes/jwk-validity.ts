/** The validity period that a JWK names: `nbf` and `exp` as in a JWT (RFC 7519 §4.1), or `not_before` and `not_after`; Plaid writes `expired_at`. */
import type { JsonWebKey } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { VerifyKey } from './scheme.ts';

/** A validity period; undefined bounds are open. */
export type Validity = Required<Pick<VerifyKey, 'notBefore' | 'notAfter'>>;

const DATE_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;
/** As seconds this is the year 5138, so larger numbers are milliseconds: read as seconds, the key would never expire. */
const MAX_SECONDS = 100_000_000_000;

/** Reads the period. Undefined if a bound cannot be interpreted: a key that its sender limits must not become an unlimited one. */
export function parseValidity(jwk: JsonWebKey): Validity | undefined {
  const starts = readDates(jwk, ['nbf', 'not_before']);
  const ends = readDates(jwk, ['exp', 'not_after', 'expired_at']);
  if (starts === undefined || ends === undefined) return undefined;
  return {
    notBefore: starts.length === 0 ? undefined : Math.max(...starts),
    notAfter: ends.length === 0 ? undefined : Math.min(...ends),
  };
}

function readDates(jwk: JsonWebKey, names: readonly string[]): EpochMilliseconds[] | undefined {
  const dates = names.flatMap((name) => (jwk[name] === undefined || jwk[name] === null ? [] : [readDate(jwk[name])]));
  return dates.includes(Number.NaN) ? undefined : dates;
}

/** NaN if the value is neither a number of seconds nor a time as in RFC 3339. */
function readDate(value: unknown): EpochMilliseconds {
  if (typeof value === 'number' && Number.isFinite(value)) return value < MAX_SECONDS ? value * 1_000 : value;
  return typeof value === 'string' && DATE_TIME.test(value) ? Date.parse(value) : Number.NaN;
}
