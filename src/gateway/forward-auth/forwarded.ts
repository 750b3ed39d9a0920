/** Reads what Forwarded (RFC 7239) says about a request, if all apps read the same. */

/** Every host and every scheme that an app may read from it. */
interface Forwarded {
  readonly hosts: readonly string[];
  readonly schemes: readonly string[];
}

/**
 * A parameter. Quoted values have the same characters as others: some apps split at separators within quotation marks, or keep a backslash. Many
 * proxies write a port or brackets without quotation marks.
 */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([!#$%&'*+.^_`|~0-9A-Za-z:[\]-]*|"[!#$%&'*+.^_`|~0-9A-Za-z:[\]-]*")[ \t]*$/;
const BLANK = /^[ \t]*$/;

/** Reads all lines as one list; undefined if two apps could split it differently. */
export function readForwarded(lines: readonly string[]): Forwarded | undefined {
  const hosts: string[] = [];
  const schemes: string[] = [];
  for (const text of lines.flatMap((line) => line.split(/[,;]/))) {
    if (BLANK.test(text)) continue;
    const [, spelled, quoted] = PARAMETER.exec(text) ?? [];
    if (spelled === undefined || quoted === undefined) return undefined;
    const value = quoted.replaceAll('"', '');
    const name = spelled.toLowerCase();
    // Spring and Reactor Netty search for `host=` anywhere, so they take `xhost=` for it.
    if (name.endsWith('host')) hosts.push(value);
    else if (name.endsWith('proto')) schemes.push(value);
  }
  return { hosts, schemes };
}
