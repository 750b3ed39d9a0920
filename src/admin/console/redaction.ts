/** Hides configured secrets in texts that clients wrote: a sender may put its secret into a path or a header by mistake. */
import { hasSecret } from '../../core/bytes.ts';

const REDACTED = '[redacted]';

/** Returns the text, or `[redacted]`; null stays null. */
export type Redact = (text: string | null | undefined) => string | null;

/** `secrets`: of the current config. */
export function createRedact(secrets: readonly Buffer[]): Redact {
  return (text) => {
    if (text === undefined || text === null) return null;
    const isSecret = hasSecret(Buffer.from(text), secrets) || hasSecret(toDecoded(text), secrets);
    return isSecret ? REDACTED : text;
  };
}

function toDecoded(text: string): Buffer {
  try {
    return Buffer.from(decodeURIComponent(text));
  } catch {
    return Buffer.from(text, 'latin1');
  }
}
