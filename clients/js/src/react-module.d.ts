// The used parts of React: its own types are a package of their own, which is needless for this.

declare module "react" {
  export function useEffect(effect: () => void | (() => void), dependencies: readonly unknown[]): void;
  export function useState<Value>(first: Value): [Value, (next: Value | ((now: Value) => Value)) => void];
  export function useSyncExternalStore<Value>(subscribe: (changed: () => void) => () => void, get: () => Value, getOnServer: () => Value): Value;
}
