/** The rules of lists of trusted addresses. */
import { normalizeIp } from '../../core/ip-address.ts';
import { type Path, type Problem, warning } from '../../core/problem.ts';

/** Half of IPv4, and half of the addresses of IPv6 that are in use (2000::/3). */
const MAX_SHARE = { ipv4: 1 / 2, ipv6: 1 / 16 } as const;
const MAPPED_BITS = 96;
const HINT = 'list only the ranges of your proxies';

/** Warns about ranges that together contain half of all addresses or more: nobody has so many proxies, and all addresses can be split in two. */
export function checkTrustedRanges(ranges: readonly string[], path: Path, message: string, hint = HINT): Problem[] {
  const shares = { ipv4: 0, ipv6: 0 };
  for (const range of new Set(ranges)) {
    const { family, share } = measure(range);
    shares[family] += share;
  }
  const wide = (['ipv4', 'ipv6'] as const).filter((family) => shares[family] >= MAX_SHARE[family]);
  return wide.flatMap((family) => {
    const index = ranges.reduce(
      (widest, range, at) => (shareOf(range, family) > shareOf(ranges[widest], family) ? at : widest),
      0,
    );
    return [warning([...path, index], message, hint)];
  });
}

function shareOf(range: string | undefined, wanted: keyof typeof MAX_SHARE): number {
  const { family, share } = measure(range ?? '');
  return family === wanted ? share : 0;
}

/** The share of all addresses of its family. A mapped IPv6 range is one of IPv4. */
function measure(range: string): { readonly family: keyof typeof MAX_SHARE; readonly share: number } {
  const [address = '', given] = range.split('/');
  const isIpv4 = normalizeIp(address)?.includes(':') === false;
  const isMapped = isIpv4 && address.includes(':');
  const bits = given === undefined ? Number.POSITIVE_INFINITY : Number(given);
  if (isMapped && bits < MAPPED_BITS) return { family: 'ipv6', share: 2 ** -bits };
  return { family: isIpv4 ? 'ipv4' : 'ipv6', share: 2 ** -(isMapped ? bits - MAPPED_BITS : bits) };
}
