/** Hides configured secrets in texts that clients wrote: a sender may put its secret into a path or a header by mistake. */

const REDACTED = '[redacted]';

/** Returns the text, or `[redacted]`; null stays null. */
export type Redact = (text: string | null | undefined) => string | null;

/** `secrets`: of the current config. */
export function createRedact(secrets: readonly Buffer[]): Redact {
  const texts = [...new Set(secrets.flatMap((secret) => [secret.toString('latin1'), secret.toString('utf8')]))];
  const shortest = Math.min(...texts.map(({ length }) => length));
  const hasSecret = (text: string): boolean => texts.some((secret) => text.includes(secret));
  return (text) => {
    if (text === undefined || text === null) return null;
    // Most texts are shorter than any secret, and this runs for each streamed request.
    if (text.length < shortest) return text;
    return hasSecret(text) || (text.includes('%') && hasSecret(toDecoded(text))) ? REDACTED : text;
  };
}

function toDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
