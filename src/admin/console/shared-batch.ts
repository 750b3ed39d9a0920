/** Chooses what a replica shares at once. Untrusted clients decide how many requests arrive and how long their texts are. */
import type { JournalEntry } from '../../telemetry/journal/journal.ts';
import type { DeliveryDetail } from './delivery-schemas.ts';

/** Of one replica at once. */
export const MAX_SHARED = 200;
const MAX_BATCH_CHARACTERS = 65_536;
/** About what a usual delivery with many headers needs. */
const MAX_DETAIL_CHARACTERS = 3_072;
const MAX_TEXT_LENGTH = 256;
const MAX_HEADERS_CHARACTERS = 768;
const MAX_FINDINGS_CHARACTERS = 1_024;
/** As where the journal truncates. */
const ELLIPSIS = '...';

interface ReplicaEntries {
  readonly entries: JournalEntry[];
  /** Characters of those that were taken. */
  length: number;
}

interface TakenText {
  readonly sequence: number;
  readonly text: string;
}

/**
 * The texts of the newest entries that fit into a batch, newest first. Verified requests and others get the same space, and either may use what
 * the other does not need: a flood of requests that nobody verified must not push out valid deliveries.
 */
export function selectBatch(newestFirst: readonly JournalEntry[], format: (entry: JournalEntry) => string): string[] {
  const groups = [newestFirst.filter(isVerified), newestFirst.filter((entry) => !isVerified(entry))].map(
    (entries): ReplicaEntries => ({ entries: entries.slice(0, MAX_SHARED).reverse(), length: 0 }),
  );
  const taken: TakenText[] = [];
  let length = 0;
  while (taken.length < MAX_SHARED) {
    const [group] = groups.filter(({ entries }) => entries.length > 0).sort((a, b) => a.length - b.length);
    const entry = group?.entries.pop();
    if (group === undefined || entry === undefined) break;
    const text = format(entry);
    length += text.length;
    if (length > MAX_BATCH_CHARACTERS) break;
    group.length += text.length;
    taken.push({ sequence: entry.sequence, text });
  }
  return taken.sort((a, b) => b.sequence - a.sequence).map(({ text }) => text);
}

/** Without the rest of its longest texts if it is much longer than a usual one. */
export function shortenDetail(full: DeliveryDetail): DeliveryDetail {
  if (JSON.stringify(full).length <= MAX_DETAIL_CHARACTERS) return full;
  const { path, detail, user, certificate, stages, headers, findings, commands } = full;
  const shown = takeFirst(headers, MAX_HEADERS_CHARACTERS);
  return {
    ...full,
    path: cut(path),
    detail: cut(detail),
    user: cut(user),
    certificate: cut(certificate),
    stages: stages.map((stage) => ({ ...stage, detail: cut(stage.detail) })),
    headers: shown.length === headers.length ? shown : [...shown, { name: ELLIPSIS, value: null }],
    findings: takeFirst(findings, MAX_FINDINGS_CHARACTERS),
    // It contains the path and all headers.
    commands: { ...commands, repeat: null },
  };
}

function isVerified({ line: { key, user, certificate } }: JournalEntry): boolean {
  return key !== undefined || user !== undefined || certificate !== undefined;
}

function takeFirst<T>(items: readonly T[], maxCharacters: number): T[] {
  let length = 0;
  const end = items.findIndex((item) => {
    length += JSON.stringify(item).length;
    return length > maxCharacters;
  });
  return items.slice(0, end === -1 ? items.length : end);
}

function cut(text: string | null): string | null {
  return text === null || text.length <= MAX_TEXT_LENGTH ? text : text.slice(0, MAX_TEXT_LENGTH) + ELLIPSIS;
}
