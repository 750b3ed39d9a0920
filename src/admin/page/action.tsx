/** Actions of a user: each is confirmed in a dialog, which also shows its progress and its result. */
import { type ComponentChildren, createContext, type JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { type Session, toMessage } from './api.ts';
import { Copy, Dialog, ErrorNotice } from './elements.tsx';

/** How much of an action is done. */
export interface Progress {
  readonly done: number;
  readonly total: number;
}

/** The result of an action. */
interface ActionResult {
  readonly text: string;
  /** Shown once, to copy. */
  readonly secret?: string;
}

/** An action. */
export interface Action {
  /** On the button, and the title of the dialog. */
  readonly label: string;
  /** What follows from it. */
  readonly question: string;
  /** Says how much it would change: it only reads. */
  readonly count?: (signal: AbortSignal) => Promise<string>;
  readonly run: (onProgress: (progress: Progress) => void, signal: AbortSignal) => Promise<ActionResult>;
}

interface ActionProps {
  readonly action: Action;
  /** Distinguishes buttons with the same label. */
  readonly of: string;
  /** After it succeeded or failed. */
  readonly onEnd: () => void;
}

interface Actions {
  readonly open: (props: ActionProps) => void;
  /** Why no action can be done; undefined if they can. */
  readonly obstacle: string | undefined;
}

const ActionsContext = createContext<Actions>({ open: () => undefined, obstacle: undefined });

interface ProviderProps {
  readonly session: Session;
  readonly children: ComponentChildren;
}

/** Shows the dialog outside of the lists: an action may remove the row with its button. */
export function ActionProvider({ session, children }: ProviderProps): JSX.Element {
  const [opened, setOpened] = useState<ActionProps>();
  return (
    <ActionsContext.Provider value={{ open: setOpened, obstacle: findObstacle(session) }}>
      {children}
      {opened !== undefined && <ActionDialog {...opened} onClose={() => setOpened(undefined)} />}
    </ActionsContext.Provider>
  );
}

function findObstacle({ user, canLogIn }: Session): string | undefined {
  if (user !== undefined) return undefined;
  return canLogIn ? 'Log in to act' : 'Read-only: set admin.basic in the config, so that users can log in';
}

/** Says why the buttons are disabled, and how to enable them. */
export function ReadOnlyNotice(): JSX.Element | null {
  const { obstacle } = useContext(ActionsContext);
  return obstacle === undefined ? null : <p class="hint">{obstacle}.</p>;
}

/** The button of an action. */
export function ActionButton(props: ActionProps): JSX.Element {
  const { open, obstacle } = useContext(ActionsContext);
  const { action, of } = props;
  return (
    <button
      type="button"
      aria-label={`${action.label} ${of}`}
      disabled={obstacle !== undefined}
      title={obstacle}
      onClick={() => open(props)}
    >
      {action.label}
    </button>
  );
}

interface ActionDialogProps extends ActionProps {
  readonly onClose: () => void;
}

type DialogState =
  | { readonly kind: 'asking' }
  | { readonly kind: 'running'; readonly progress: Progress | undefined }
  | { readonly kind: 'done'; readonly result: ActionResult }
  | { readonly kind: 'failed'; readonly error: string };

function ActionDialog({ action, of, onEnd, onClose }: ActionDialogProps): JSX.Element {
  const [state, setState] = useState<DialogState>({ kind: 'asking' });
  const abort = useRef(new AbortController());
  const result = useRef<HTMLDivElement>(null);
  useEffect(() => () => abort.current.abort(), []);
  // The button that had the focus is gone.
  useEffect(() => {
    if (state.kind !== 'asking') result.current?.focus();
  }, [state.kind]);
  const start = async (): Promise<void> => {
    setState({ kind: 'running', progress: undefined });
    try {
      const result = await action.run((progress) => setState({ kind: 'running', progress }), abort.current.signal);
      setState({ kind: 'done', result });
    } catch (error) {
      setState({ kind: 'failed', error: toMessage(error) });
    }
    onEnd();
  };
  return (
    <Dialog title={`${action.label} ${of}`} isSmall onClose={onClose}>
      {state.kind === 'asking' && (
        <>
          <p>{action.question}</p>
          {action.count !== undefined && <Count count={action.count} />}
          <button type="button" class="main" onClick={() => void start()}>
            {action.label}
          </button>{' '}
          <button type="button" onClick={onClose}>
            Back
          </button>
        </>
      )}
      <div ref={result} tabIndex={-1} class="result">
        {state.kind === 'running' && <Running progress={state.progress} />}
        {state.kind === 'done' && <Done result={state.result} />}
        <ErrorNotice error={state.kind === 'failed' ? state.error : undefined} />
      </div>
    </Dialog>
  );
}

/** How much an action would change. */
function Count({ count }: Required<Pick<Action, 'count'>>): JSX.Element {
  const [text, setText] = useState('Counting');
  useEffect(() => {
    const abort = new AbortController();
    count(abort.signal).then(setText, (error: unknown) => {
      if (!abort.signal.aborted) setText(toMessage(error));
    });
    return () => abort.abort();
  }, []);
  return <p role="status">{text}</p>;
}

function Running({ progress }: { readonly progress: Progress | undefined }): JSX.Element {
  return (
    <p role="status">
      {progress === undefined ? (
        'In progress'
      ) : (
        <>
          <progress value={progress.done} max={Math.max(1, progress.total)} aria-label="Progress" /> {progress.done} of{' '}
          {progress.total}
        </>
      )}
    </p>
  );
}

function Done({ result: { text, secret } }: { readonly result: ActionResult }): JSX.Element {
  return (
    <>
      <p role="status" class="live">
        {text}
      </p>
      {secret !== undefined && <Copy label="The new secret. It is not shown again." text={secret} />}
    </>
  );
}
