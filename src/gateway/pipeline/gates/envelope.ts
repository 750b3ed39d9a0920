/** Is the verified content an event envelope whose id is the signed one? (interface.md part 2; only where the route asks) */
import type { Exchange } from '../../../core/exchange.ts';
import { refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

/** Requires a JSON object {type, id, created, data} whose id equals the Webhook-Id. Stands behind the signature: strangers' JSON is never parsed. */
export function createEnvelopeGate(): Gate {
  return {
    name: 'envelope',
    check(exchange: Exchange): Verdict {
      const delivery = exchange.facts.delivery;
      if (delivery === undefined) throw new Error('the envelope gate stands behind the signature gate');
      const problem = findEnvelopeProblem(delivery.body, delivery.id);
      return problem === undefined ? undefined : refuse('envelope_mismatch', 'envelope_mismatch', problem);
    },
  };
}

function findEnvelopeProblem(body: Buffer, id: string | undefined): string | undefined {
  const envelope = parseObject(body);
  if (envelope === undefined) return 'the body is not a JSON object in UTF-8';
  if (typeof envelope['type'] !== 'string') return 'type is not a string';
  if (typeof envelope['id'] !== 'string') return 'id is not a string';
  if (typeof envelope['created'] !== 'number') return 'created is not a number';
  if (!isObject(envelope['data'])) return 'data is not an object';
  if (envelope['id'] !== id) return 'id differs from Webhook-Id';
  return undefined;
}

function parseObject(body: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
