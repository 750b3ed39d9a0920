/** Findings from the request head alone, without any hashing. */

import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { SignedHead } from '../../core/event.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { Scheme } from '../../verify/schemes/scheme.ts';
import { TIMESTAMP_FORMATS, TIMESTAMP_UNITS } from '../../verify/schemes/timestamp.ts';
import { type AnalysisInput, type ExplainFinding, isRefused } from './analysis.ts';
import { CAUSES } from './causes.ts';
import type { ExplainCause } from './explain-metrics.ts';
import { toSeenPresets, toTwins } from './head-forms.ts';

const SECOND: Milliseconds = 1_000;
const HALF_HOUR: Milliseconds = 1_800_000;
/** A wrong time zone is recognized despite delays of up to this long. */
const LEEWAY: Milliseconds = 60_000;
/** A timestamp this far off is in another unit, not late. */
const YEAR: Milliseconds = 31_536_000_000;

/** Creates a finding, by default with the cause's fix. */
export function toFinding(cause: ExplainCause, text: string, fix = CAUSES[cause].fix): ExplainFinding {
  return { cause, text, fix };
}

/** Findings on the head, as the route's scheme reads it. */
export function toHeadHints(analysisInput: AnalysisInput, head: SignedHead | Refusal): ExplainFinding[] {
  if (!isRefused(head)) return [...toUnitHint(analysisInput), ...toAlgorithmHint(analysisInput, head)];
  const found = [...toPresetHints(analysisInput), ...toUnitHint(analysisInput)];
  if (head.reason === 'missing_signature') {
    if (!found.some(({ cause }) => cause === 'header_family')) found.push(toFinding('headers_missing', toMissing(analysisInput)));
  } else if (!found.some(({ cause }) => cause === 'timestamp_unit')) {
    found.push(toFinding('headers_malformed', `the signature headers are malformed: ${head.detail ?? 'they cannot be parsed'}`));
  }
  return found;
}

function toMissing({ scheme, request: { headers } }: AnalysisInput): string {
  const missing = toNeededHeaders(scheme).filter((name) => (headers.get(name.toLowerCase()) ?? '') === '');
  const last = missing.at(-1);
  if (last === undefined) return 'the signature, or a signed value, is missing';
  return missing.length === 1 ? `${last} is missing` : `${missing.slice(0, -1).join(', ')} and ${last} are missing`;
}

/** The headers that verification requires, as the scheme spells their names. */
function toNeededHeaders({ description: { id, timestamp, signature, signed } }: Scheme): string[] {
  const names = signature === undefined || signature.header === '' ? [] : [signature.header];
  if (timestamp !== undefined && 'header' in timestamp.from) names.unshift(timestamp.from.header);
  if (id !== undefined && 'header' in id && signed.includes('id')) names.unshift(id.header);
  return names;
}

function toPresetHints(analysisInput: AnalysisInput): ExplainFinding[] {
  const twins = toTwins(analysisInput.scheme.description);
  return toSeenPresets(analysisInput).flatMap(({ preset, names }) => {
    const name = preset.signature?.header ?? '';
    // A token header does not identify a sender, and a header of the route's own scheme does not point to another preset.
    if (preset.signed.length === 0 || analysisInput.scheme.headerNames.includes(name.toLowerCase())) return [];
    const isTwin = twins.has(name.toLowerCase());
    // A route that accepts both names gets here only if the request has both.
    if (isTwin && analysisInput.scheme.description.acceptsTwins === true)
      return [toFinding('header_family', `the request has ${name} beside headers of the other naming scheme`)];
    const text = isTwin ? `the headers use the naming of ${name}` : `this looks like ${names}: the request has ${name}`;
    return [toFinding(isTwin ? 'header_family' : 'other_preset', `${text} (scheme: ${names})`)];
  });
}

/** Recognizes the unit by the instant that the value means in each unit. */
function toUnitHint({ scheme: { description }, request: { headers, receivedAt } }: AnalysisInput): ExplainFinding[] {
  const { timestamp } = description;
  if (timestamp === undefined || !('header' in timestamp.from)) return [];
  const { unit, from } = timestamp;
  const text = headers.get(from.header.toLowerCase()) ?? '';
  const isNear = (at: EpochMilliseconds | undefined): boolean => at !== undefined && Math.abs(receivedAt - at) < YEAR;
  if (text === '' || isNear(TIMESTAMP_FORMATS[unit].parse(text))) return [];
  const other = TIMESTAMP_UNITS.find((each) => each !== unit && isNear(TIMESTAMP_FORMATS[each].parse(text)));
  if (other !== undefined)
    return [
      toFinding(
        'timestamp_unit',
        `the timestamp looks like ${TIMESTAMP_FORMATS[other].title}; this scheme uses ${TIMESTAMP_FORMATS[unit].title}`,
      ),
    ];
  // No unit fits exactly; a number that is about a thousand times too large is still milliseconds.
  const at = TIMESTAMP_FORMATS[unit].parse(text);
  const isScaled = unit === 's' && at !== undefined && at > receivedAt + 10 * YEAR;
  return isScaled ? [toFinding('timestamp_unit', 'the timestamp looks like milliseconds; this scheme uses seconds')] : [];
}

/** A secret cannot verify signatures of a key pair, nor the reverse. */
function toAlgorithmHint({ keys }: AnalysisInput, { signatures }: SignedHead): ExplainFinding[] {
  const known = new Set(keys.map(({ key }) => (key?.material as { algorithm?: string } | undefined)?.algorithm));
  const sent = [...new Set(signatures.map(({ algorithm }) => algorithm))];
  if (known.has(undefined) || keys.length === 0 || sent.length === 0 || sent.some((algorithm) => known.has(algorithm))) return [];
  const text = `the signatures use ${sent.join(' and ')}, but the keys of the route are for ${[...known].join(' and ')}`;
  return [toFinding('signature_algorithm', text)];
}

/** Why the timestamp is not accepted; empty if it is. */
export function toTimeHints(
  { tolerance, request: { receivedAt } }: AnalysisInput,
  signedAt: EpochMilliseconds,
): ExplainFinding[] {
  const skew = receivedAt - signedAt;
  if (tolerance === undefined || Math.abs(skew) >= YEAR || (skew <= tolerance.past && -skew <= tolerance.future)) return [];
  const distance = Math.round(Math.abs(skew) / SECOND);
  if (skew < 0)
    return [
      toFinding(
        'clock_skew',
        `the timestamp is ${distance} s in the future: the sender's clock is fast, or the local clock is slow`,
      ),
    ];
  const past = Math.round(tolerance.past / SECOND);
  const offset = Math.round(skew / HALF_HOUR) * HALF_HOUR;
  if (offset >= HALF_HOUR && offset <= 28 * HALF_HOUR && Math.abs(skew - offset) <= LEEWAY)
    return [
      toFinding(
        'clock_skew',
        `the timestamp is ${distance} s old, a multiple of half an hour: a clock or a time zone may be wrong`,
      ),
    ];
  return [toFinding('late', `the delivery is ${distance} s old; the tolerance is ${past} s`)];
}
