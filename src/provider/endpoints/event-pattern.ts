/** Patterns of event types: segments between dots, where `*` stands for one or more whole segments. */

/** A compiled pattern. */
export interface EventPattern {
  readonly segments: readonly string[];
  /** It contains a `*`. */
  readonly isWildcard: boolean;
}

const ANY = '*';

/** `text` must have the form that the config schema requires. */
export function parseEventPattern(text: string): EventPattern {
  const segments = text.split('.');
  return { segments, isWildcard: segments.includes(ANY) };
}

/** Matches greedily and returns to the latest `*` only, so the time is bounded by the product of the lengths. */
export function matchesPattern({ segments }: EventPattern, type: readonly string[]): boolean {
  let at = 0;
  let star = -1;
  /** The next segment that the latest `*` would take in addition. */
  let next = 0;
  for (let index = 0; index < type.length; ) {
    if (segments[at] === ANY) {
      star = at++;
      next = ++index;
    } else if (at < segments.length && segments[at] === type[index]) {
      at++;
      index++;
    } else {
      if (star === -1) return false;
      at = star + 1;
      index = ++next;
    }
  }
  return at === segments.length;
}
