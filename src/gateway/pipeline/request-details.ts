/** The details of a request that the journal keeps besides its log line. */

import type { HeaderFields } from '../../core/headers.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { RequestDetails } from '../../telemetry/journal/journal.ts';
import { PRESETS } from '../../verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import { type RequestRecord, toObservedRefusal } from './request-record.ts';

/** Fields that contain neither credentials nor signatures. */
const GENERAL_HEADERS: readonly string[] = [
  'host',
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'user-agent',
  'expect',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
];
/** Never shown: a token is a credential, and a signature with its body could be sent again. */
const SIGNATURE_HEADERS: ReadonlySet<string> = new Set(PRESETS.map(({ signature }) => signature?.header.toLowerCase() ?? ''));
/** The values of all other fields are hidden: they may be credentials. */
const SHOWN_HEADERS: ReadonlySet<string> = new Set([
  ...GENERAL_HEADERS,
  ...PRESETS.flatMap(toTimeAndId).filter((name) => !SIGNATURE_HEADERS.has(name)),
]);
const ELLIPSIS = '...';
const MAX_PATH_LENGTH = 1_024;
const MAX_FIELDS = 64;
const MAX_NAME_LENGTH = 64;
const MAX_VALUE_LENGTH = 256;
const MAX_HEADERS_LENGTH = 4_096;

/** The details of one request. */
export function toDetails(requestRecord: RequestRecord): RequestDetails {
  const { head, decision, outcome, route } = requestRecord;
  const isAdmitted = decision?.kind === 'admitted';
  const event = isAdmitted ? decision.admitted.claimed?.event : decision?.event;
  const path = head?.target.path;
  return {
    path: path === undefined ? undefined : cut(path, MAX_PATH_LENGTH),
    headers: head === undefined ? '' : toText(head.headers),
    signedAt: event === undefined ? toRefused(requestRecord)?.claimedAt : event.timestamp,
    isClaimed: isAdmitted && decision.admitted.claimed?.claim !== undefined,
    bytesOut: outcome !== undefined && 'contentBytes' in outcome ? outcome.contentBytes : undefined,
    body: route?.bodies?.record(requestRecord),
  };
}

/** The rejection, also one that was not enforced. */
function toRefused(requestRecord: RequestRecord): Refusal | undefined {
  return requestRecord.refusal ?? toObservedRefusal(requestRecord);
}

/** The fields, one per line. */
function toText({ names, raw }: HeaderFields): string {
  const lines: string[] = [];
  const count = Math.min(names.length, MAX_FIELDS);
  for (let i = 0; i < count; i++) {
    const name = names[i] as string;
    lines.push(
      SHOWN_HEADERS.has(name) ? `${name}\t${cut(raw[i * 2 + 1] as string, MAX_VALUE_LENGTH)}` : cut(name, MAX_NAME_LENGTH),
    );
  }
  return cut(lines.join('\n'), MAX_HEADERS_LENGTH);
}

function cut(text: string, maxLength: number): string {
  return text.length > maxLength ? text.slice(0, maxLength) + ELLIPSIS : text;
}

function toTimeAndId({ timestamp, id }: SchemeDescription): string[] {
  return [timestamp?.from, id].flatMap((source) =>
    source !== undefined && 'header' in source ? [source.header.toLowerCase()] : [],
  );
}
