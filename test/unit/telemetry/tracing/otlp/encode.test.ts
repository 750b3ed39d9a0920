import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { toExport } from '../../../../../src/telemetry/tracing/otlp/encode.ts';
import type { Span } from '../../../../../src/telemetry/tracing/span.ts';
import { PYTHON } from '../../../../support/run.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN: Span = {
  traceId: TRACE,
  spanId: '00f067aa0ba902b7',
  flags: 3,
  tracestate: 'rojo=1',
  parentId: '1111111111111111',
  isParentRemote: true,
  kind: 'server',
  name: 'POST /hooks',
  startedAt: 1_700_000_000_000,
  endedAt: 1_700_000_000_012.345,
  attributes: { 'http.response.status_code': 503, 'url.scheme': 'https' },
  isError: true,
  link: { traceId: '22222222222222222222222222222222', spanId: '3333333333333333', flags: 1, tracestate: undefined },
};
const SOURCE = { resource: { 'service.name': 'sidegate' }, version: '1.2.3' };

/** Ids are hex in OTLP's JSON, and base64 in that of Protobuf; all else is the same. Unknown members are errors. */
const READER = `
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
IDS = ('traceId', 'spanId', 'parentSpanId')
def read(value):
    if isinstance(value, dict):
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in IDS else read(v) for k, v in value.items()}
    return [read(v) for v in value] if isinstance(value, list) else value
request = json_format.Parse(json.dumps(read(json.load(sys.stdin))), ExportTraceServiceRequest())
for one in request.resource_spans[0].scope_spans[0].spans:
    print(one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex() or '-', one.name, one.kind, one.flags, one.trace_state or '-',
          one.end_time_unix_nano - one.start_time_unix_nano, one.status.code, len(one.links), one.attributes[0].value.int_value)
`;

/** The reader that the project of the format gives out. */
const hasProto = PYTHON !== undefined && spawnSync(PYTHON, ['-c', 'import opentelemetry.proto']).status === 0;

describe('an export', () => {
  test.skipIf(!hasProto)('is decoded with the same values by the official definition of the format', () => {
    const client: Span = {
      ...SPAN,
      kind: 'client',
      parentId: undefined,
      isParentRemote: false,
      isError: false,
      link: undefined,
      tracestate: undefined,
    };
    const input = toExport([SPAN, client], SOURCE);
    const { stdout, stderr } = spawnSync(PYTHON as string, ['-c', READER], { input, encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(stdout.trim().split('\n')).toEqual([
      `${TRACE} 00f067aa0ba902b7 1111111111111111 POST /hooks 2 771 rojo=1 12345000 2 1 503`,
      `${TRACE} 00f067aa0ba902b7 - POST /hooks 3 259 - 12345000 0 0 503`,
    ]);
  });

  test('keeps any text within its field', () => {
    const name = '"},{"\u2028\ud800\u0000é';
    const { resourceSpans } = JSON.parse(toExport([{ ...SPAN, name, attributes: { name } }], SOURCE));
    const [span] = resourceSpans[0].scopeSpans[0].spans;
    expect(span.name).toBe(name);
    expect(span.attributes).toEqual([{ key: 'name', value: { stringValue: name } }]);
  });
});
