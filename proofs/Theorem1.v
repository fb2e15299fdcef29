(** Theorem 1: self-attention can be a convolution, with a number.

    book/theorem.md; attnconv.theory.theorem1.heads_for.  The layer is that of Lemmas 1
    and 2: head [h] has its centre at the shift [f h] and the kernel's matrix of that shift; for
    small [D_k] its key matrices hold [v]. *)

From mathcomp Require Import all_ssreflect all_algebra boolp reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma2.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** All parameters of a layer with a relative encoding, equation (8). *)
Record layer (R : realType) (N Din Dh Dout Dk Dp : nat) := Layer {
  Wqry : 'I_N -> 'M[R]_(Dk, Din);
  Wkey : 'I_N -> 'M[R]_(Dk, Din);
  Wkeyhat : 'I_N -> 'M[R]_(Dk, Dp);
  u : 'I_N -> 'cV[R]_Dk;
  v : 'I_N -> 'cV[R]_Dk;
  r : shift -> 'cV[R]_Dp;
  Wval : 'I_N -> 'M[R]_(Din, Dh);
  Wout : 'M[R]_(N * Dh, Dout);
  bout : 'rV[R]_Dout
}.

(** What the layer makes of an image on the pixels [S]. *)
Definition apply_layer (R : realType) N Din Dh Dout Dk Dp (L : layer R N Din Dh Dout Dk Dp)
    (S : seq pixel) (X : image R Din) : image R Dout :=
  let A h := relative_scores (Wqry L h) (Wkey L h) (Wkeyhat L h) (u L h) (v L h) (r L) X in
  mhsa S (probabilities S A) (Wval L) (Wout L) (bout L) X.

Section Theorem1.
Variables (R : realType) (N Din Dh Dout Dk Dp m : nat).
Variables (Delta : seq shift) (f : 'I_N -> shift) (g : 'I_m -> 'I_Dout).
Variables (W : shift -> 'M[R]_(Din, m)) (b : 'rV[R]_m).

(** The layer: equation (9) with one [alpha], the values of Lemma 1 at the outputs [g]. *)
Definition conv_layer (alpha : R) : layer R N Din Dh Dout Dk Dp := {|
  Wqry := fun _ => 0; Wkey := fun _ => 0; Wkeyhat := fun _ => pid_mx Dp; u := fun _ => 0;
  v := fun h => quadratic_v Dk alpha (f h); r := @quadratic_r R Dp;
  Wval := wide_values Dh (fun h => W (f h)); Wout := wide_out R N Dh g; bout := b *m select R g |}.

(** The sum of the sizes of all weights that lead to output [o]. *)
Definition kernel_norm (o : 'I_m) : R := \sum_(delta <- Delta) \sum_i `|W delta i o|.

Hypotheses (mDh : (m <= Dh)%N) (g_inj : injective g).
Hypothesis f_Delta : perm_eq (codom f) Delta.

(** One head, one input channel: probabilities that give at least [1 - e] to the pixel [c] blend
    numbers of size at most [B] to what stands at [c], up to [2 e B]. *)
Lemma blend_le (S : seq pixel) (p x : pixel -> R) c e B :
  uniq S -> c \in S -> (forall k, k \in S -> 0 <= p k) -> \sum_(k <- S) p k = 1 -> 1 - e <= p c ->
  (forall k, k \in S -> `|x k| <= B) -> `|(\sum_(k <- S) p k * x k) - x c| <= 2%:R * e * B.
Proof.
move=> S_uniq cS p0; rewrite (bigD1_seq c) //=; set rest := \sum_(k <- S | k != c) p k => sum1.
rewrite ler_subl_addr -{1}sum1 ler_add2l => rest_le xB.
have -> : (\sum_(k <- S) p k * x k) - x c = \sum_(k <- S | k != c) p k * (x k - x c).
  rewrite (bigD1_seq c) //= -{2}[x c]mul1r -sum1 mulrDl opprD addrA [p c * _ + _]addrC addrK.
  by rewrite mulr_suml -sumrB; apply: eq_bigr => k _; rewrite mulrBr.
have B0 : 0 <= B := le_trans (normr_ge0 _) (xB _ cS).
apply: (@le_trans _ _ (rest * (2%:R * B))); last first.
  by rewrite [2%:R * e]mulrC -mulrA ler_wpmul2r ?mulr_ge0 ?ler0n.
rewrite mulr_suml big_seq_cond [leRHS]big_seq_cond; apply: le_trans (ler_norm_sum _ _ _) _.
apply: ler_sum => k /andP[kS _]; rewrite normrM ger0_norm ?p0 // ler_wpmul2l ?p0 //.
by rewrite mulr_natl mulr2n (le_trans (ler_norm_sub _ _)) // ler_add ?xB.
Qed.

(** ** Heads that are nearly hard

    Let [Delta] be any list of shifts, numbered by the heads, and [W] any kernel over it with
    [m <= D_h] output channels, which are to appear at the outputs [g] of the layer. Let the
    attention be any probabilities for which, at the interior query [q], each head gives at least
    [1 - e] to the pixel at its shift. On an image with numbers of size at most [B] the layer
    differs there from the convolution by at most [2 e B sum_delta sum_i |W_delta,i,o|] in output
    channel [o]. *)
Theorem nearly_hard_heads (a : 'I_N -> pixel -> pixel -> R) (e B : R) (o : 'I_m) S
    (X : image R Din) q :
  uniq S -> interior S Delta q -> (forall k i, k \in S -> `|X k 0 i| <= B) ->
  (forall h k, k \in S -> 0 <= a h q k) -> (forall h, \sum_(k <- S) a h q k = 1) ->
  (forall h, 1 - e <= a h q (q + f h)) ->
  `|mhsa S a (wide_values Dh (fun h => W (f h))) (wide_out R N Dh g) (b *m select R g) X q 0 (g o)
    - conv Delta W b X q 0 o| <= 2%:R * e * B * kernel_norm o.
Proof.
move=> S_uniq qS XB a0 a1 centre.
have fS h : q + f h \in S by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
pose hard (h : 'I_N) q k : R := (k - q == f h)%:R.
(* Lemma 1: the convolution is the same layer with hard heads; both are sums over the heads *)
have W_f h : W (f h) = W (f h) by [].
rewrite -(lemma_1_outputs (a := hard) b X o W_f mDh g_inj S_uniq f_Delta qS) //.
have value h : value_matrix (wide_values Dh (fun h => W (f h))) (wide_out R N Dh g) h =
  W (f h) *m select R g by exact: value_matrix_wide.
rewrite (@eq_13 _ _ _ _ _ _ f hard) // eq_12.
rewrite ![(_ + _ *m _) _ _]mxE opprD addrACA subrr addr0 !summxE -sumrB.
rewrite /kernel_norm (sum_heads _ f_Delta) mulr_sumr.
apply: le_trans (ler_norm_sum _ _ _) (ler_sum _ _) => h _.
rewrite ![value_matrix _ _ _]value !mulmxA !mulmx_select // !mxE -sumrB mulr_sumr.
apply: le_trans (ler_norm_sum _ _ _) (ler_sum _ _) => i _.
rewrite -mulrBl normrM ler_wpmul2r // summxE; under eq_bigr do rewrite mxE.
have X_i k : k \in S -> `|X k 0 i| <= B by move=> kS; apply: XB.
exact: (blend_le (p := a h q) (x := fun k => X k 0 i) S_uniq (fS h) (a0 h) (a1 h) (centre h) X_i).
Qed.

Hypotheses (Dp3 : (3 <= Dp)%N) (DpDk : (Dp <= Dk)%N).

(** ** Theorem 1, the gap

    Let [Delta] be any list of shifts, numbered by the heads, and [W] any kernel over it with [m
    <= D_h] output channels, which are to appear at the outputs [g] of the layer; let [3 <= D_p
    <= D_k]. At every interior query of an [H x Wd] image with numbers of size at most [B], the
    layer differs from the convolution, in output channel [o], by at most [2 min(T - 1, 4)
    e^-alpha B sum_delta sum_i |W_delta,i,o|], with [T = H Wd]. *)
Theorem theorem_1_gap (alpha B : R) (o : 'I_m) p H Wd (X : image R Din) q :
  let S := rectangle p H Wd in
  0 <= alpha -> (forall k i, k \in S -> `|X k 0 i| <= B) -> interior S Delta q ->
  `|apply_layer (conv_layer alpha) S X q 0 (g o) - conv Delta W b X q 0 o| <=
  2%:R * miss alpha (H * Wd) * B * kernel_norm o.
Proof.
move=> S alpha0 XB qS; have fS h : q + f h \in S by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
apply: nearly_hard_heads => // [|h k kS|h|h].
- exact: uniq_rectangle.
- exact/ltW/softmax_gt0.
- exact: softmax_sum (fS h).
(* Lemma 2: the head gives nearly everything to its pixel *)
- by have [] := lemma_2 0 X Dp3 DpDk alpha0 (fS h).
Qed.

(** ** Theorem 1, with the [alpha] that suffices

    For every kernel [W], bias [b] and dimensions as above, bound [B] of the images and [eps >
    0]: if no output channel's weights sum to more than [M] in size, then with any [alpha >= ln
    (1 + 8 B M / eps)] the layer is within [eps] of the convolution, at every interior query of
    images of every size. *)
Theorem theorem_1_alpha (alpha B M eps : R) :
  0 <= B -> 0 < eps -> (forall o, kernel_norm o <= M) -> ln (1 + 8%:R * B * M / eps) <= alpha ->
  forall p H Wd (X : image R Din) q o, let S := rectangle p H Wd in
  (forall k i, k \in S -> `|X k 0 i| <= B) -> interior S Delta q ->
  `|apply_layer (conv_layer alpha) S X q 0 (g o) - conv Delta W b X q 0 o| < eps.
Proof.
move=> B0 eps0 WM large p H Wd X q o S XB qS.
have M0 : 0 <= M.
  by apply: le_trans (WM o); do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
have [alpha0 small] : 0 <= alpha /\ 2%:R * B * M * miss alpha (H * Wd) < eps.
  apply: enough_le => //; first by rewrite !mulr_ge0 ?ler0n.
  by rewrite /enough !mulrA -natrM.
apply: le_lt_trans small; apply: le_trans (theorem_1_gap o alpha0 XB qS) _.
rewrite [leRHS]mulrAC [2%:R * miss _ _ * B]mulrAC ler_wpmul2l ?WM //.
by rewrite mulr_ge0 ?miss_ge0 // mulr_ge0 ?ler0n.
Qed.
End Theorem1.

(** With [v] moved into the key matrix of its head, one row of [Wkeyhat] is enough: keys of any
    dimension.  For layers without [Wqry] and [Wkey]. *)
Definition fold_keys (R : realType) N Din Dh Dout Dk' Dk Dp (L : layer R N Din Dh Dout Dk' Dp) :
    layer R N Din Dh Dout Dk.+1 Dp := {|
  Wqry := fun _ => 0; Wkey := fun _ => 0; u := fun _ => 0; v := fun _ => delta_mx 0 0;
  Wkeyhat := fun h => delta_mx 0 0 *m ((v L h)^T *m Wkeyhat L h); r := r L;
  Wval := Wval L; Wout := Wout L; bout := bout L |}.

Lemma fold_keys_same (R : realType) N Din Dh Dout Dk' Dk Dp (L : layer R N Din Dh Dout Dk' Dp) S X :
  (forall h, Wqry L h = 0) -> (forall h, Wkey L h = 0) ->
  apply_layer (fold_keys Dk L) S X = apply_layer L S X.
Proof.
move=> qry0 key0; pose A (Dk0 : nat) (L0 : layer R N Din Dh Dout Dk0 Dp) h :=
  relative_scores (Wqry L0 h) (Wkey L0 h) (Wkeyhat L0 h) (u L0 h) (v L0 h) (r L0) X.
suff same : A _ (fold_keys Dk L) = A _ L.
  exact: (congr1 (fun B => mhsa S (probabilities S B) (Wval L) (Wout L) (bout L) X) same).
apply/funext => h; apply/funext => q; apply/funext => k.
rewrite /A /relative_scores /= qry0 key0 !trmx0 !mulmx0 !mul0mx !add0r trmx_delta !mulmxA.
rewrite mul_delta_mx (_ : delta_mx 0 0 = 1%:M) ?mul1mx //.
by apply/matrixP=> i j; rewrite !ord1 !mxE.
Qed.

(** One number that is at least the norm of every output channel. *)
Lemma kernel_norm_total (R : realType) Din m Delta (W : shift -> 'M[R]_(Din, m)) o :
  kernel_norm Delta W o <= \sum_o' kernel_norm Delta W o'.
Proof.
rewrite (bigD1 o) //= ler_addl sumr_ge0 // => ? _.
by do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
Qed.

(** ** Theorem 1, for any list of shifts and any outputs

    Let [3 <= D_p] and [0 < D_k].  For every kernel over any [N] shifts with at most [D_h] output
    channels, some layer with [N] heads, whose relative encoding is that of (9), is within [eps] of
    the convolution at the outputs [g], at every interior query of images of every size with
    numbers of size at most [B]. *)
Theorem theorem_1_any_kernel (R : realType) N Din Dh Dout Dk Dp m (Delta : seq shift)
    (g : 'I_m -> 'I_Dout) (W : shift -> 'M[R]_(Din, m)) b B eps :
  size Delta = N -> (m <= Dh)%N -> injective g -> (3 <= Dp)%N -> (0 < Dk)%N ->
  0 <= B -> 0 < eps ->
  exists2 L : layer R N Din Dh Dout Dk Dp, r L = @quadratic_r R Dp &
  forall p H Wd (X : image R Din) q o, let S := rectangle p H Wd in
  (forall k i, k \in S -> `|X k 0 i| <= B) -> interior S Delta q ->
  `|apply_layer L S X q 0 (g o) - conv Delta W b X q 0 o| < eps.
Proof.
case: Dk => // Dk Delta_N mDh g_inj Dp3 _ B0 eps0.
have f_Delta : perm_eq (codom (fun h : 'I_N => Delta`_h)) Delta by rewrite codom_nth.
pose M := \sum_o kernel_norm Delta W o; pose alpha := ln (1 + 8%:R * B * M / eps).
exists (fold_keys Dk (conv_layer Dh Dp Dp (fun h => Delta`_h) g W b alpha)) => //.
move=> p H Wd X q o S XB qS; rewrite fold_keys_same //.
have le_M := kernel_norm_total Delta W.
exact: (theorem_1_alpha b mDh g_inj f_Delta Dp3 (leqnn _) B0 eps0 le_M (lexx _)).
Qed.

(** ** Theorem 1

    For every dimension [3 <= D_p] one relative encoding [r] serves every kernel: for every kernel
    size [K], all other dimensions with [0 < D_k], every [K x K] kernel with [min(D_h, D_out)]
    output channels, every bound [B] and every [eps > 0] there is a self-attention layer with the
    encoding [r], [K^2] heads of dimension [D_h] and output dimension [D_out]. Take any image of any
    size, padded with anything as wide as the kernel reaches, with numbers of size at most [B],
    padding included. At every pixel of the image, including those at the border, the first
    [min(D_h, D_out)] outputs of the layer are within [eps] of the convolution. (The paper asks
    [D_p <= D_k]; but if each head's own key matrix contains its [v], one row is enough:
    [fold_keys].) *)
Theorem theorem_1 (R : realType) (Dp : nat) : (3 <= Dp)%N ->
  exists r0 : shift -> 'cV[R]_Dp,
  forall (K Din Dh Dout Dk : nat) (W : shift -> 'M[R]_(Din, minn Dh Dout))
    (b : 'rV_(minn Dh Dout)) (B eps : R),
  (0 < Dk)%N -> 0 <= B -> 0 < eps ->
  exists2 L : layer R (K * K) Din Dh Dout Dk Dp, r L = r0 &
  forall H Wd (X : image R Din),
  let S := padded_grid K.-1./2 K./2 K.-1./2 K./2 H Wd in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  forall q (o : 'I_(minn Dh Dout)), q \in grid H Wd ->
  `|apply_layer L S X q 0 (widen_ord (geq_minr Dh Dout) o)
    - conv (kernel_shifts K K) W b X q 0 o| < eps.
Proof.
move=> Dp3; exists (@quadratic_r R Dp) => K Din Dh Dout Dk W b B eps Dk0 B0 eps0.
pose g := widen_ord (geq_minr Dh Dout).
have g_inj : injective g by move=> i j /(congr1 val) /= ij; apply: val_inj.
have [L rL close] := theorem_1_any_kernel W b (size_kernel_shifts K K) (geq_minl _ _) g_inj
  Dp3 Dk0 B0 eps0.
by exists L => // H Wd X S XB q o qI; apply: close => //; apply: interior_padded.
Qed.
